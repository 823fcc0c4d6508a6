import re
from pathlib import Path

import pytest

from tests.end_to_end.busway_process import BuswayProcess

pytestmark = [pytest.mark.slow, pytest.mark.long]

WAYS = {
    "all-active (events)": 4,
    "active-passive (payments)": 2,
    "spillover (jobs)": 6,
}


def rows(output: str) -> dict[str, list[list[str]]]:
    """Return the rows of the first table by pattern, each as its cells."""
    found: dict[str, list[list[str]]] = {}
    table = output.partition("disorder")[2].partition("lag in ms")[0]
    for line in table.splitlines():
        if line.strip() in WAYS:
            found[line.strip()] = rows = []
        elif line.startswith("  ") and found:
            rows.append(re.split(r"\s{2,}", line.strip()))
    return found


@pytest.mark.always
def test_all_expectations_hold_for_recorded_webhooks() -> None:
    with BuswayProcess("demo", "--count", "200") as demo:
        code, out, err = demo.result(300)
    assert code == 0, out + err
    assert "All expectations hold: 200 messages, 370 deliveries" in out
    assert "clean. 200 messages, all accounted for." in out
    page = next(line.removeprefix("page: ") for line in out.splitlines() if line.startswith("page: "))
    assert Path(page).read_text(encoding="utf-8").startswith("<!doctype html>")
    table = rows(out)
    assert {pattern: len(ways) for pattern, ways in table.items()} == WAYS
    for ways in table.values():
        for _, sent, arrived, lost, duplicates, order_breaks, bounced, changes in ways:
            assert int(sent) == int(arrived) > 0
            assert lost == duplicates == bounced == changes == "0"
            assert order_breaks in ("0", "-")
    lags = out.partition("lag in ms")[2].partition("Reconciling")[0].splitlines()
    assert len([line for line in lags if re.fullmatch(r"  \w.* +\d+ +\d+ +\d+ *", line)]) == 7
    progress = [line for line in out.splitlines() if re.match(r" *\d+ s  sent", line)]
    assert progress
    assert max(map(len, progress)) < 80


def test_other_messages_can_be_sent(tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text(
        '{"body": "one", "session_id": "s", "properties": {"c": {"type": "char", "value": "é"}}}\n{"body": {}}'
    )
    with BuswayProcess("demo", "--file", str(file)) as demo:
        code, out, err = demo.result(300)
    assert code == 0, out + err
    assert "All expectations hold: 20 messages" in out


@pytest.mark.always
def test_a_bad_line_in_a_file_is_reported_before_the_start(tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text('{"body": "one"}\n{"bodi": "two"}\n')
    with BuswayProcess("demo", "--file", str(file)) as demo:
        code, out, err = demo.result()
    assert (code, out) == (1, "")
    assert f"{file}: line 2: unknown key 'bodi'" in err
