"""`busway status` as text: readable at 80 columns, with a hundred tasks, and with names from outside."""

import json
import re
import shutil
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from msgspec import to_builtins
from typer.testing import CliRunner

from cli.commands.schema import text as schema_text
from cli.main import app
from cli.status_text import status_text
from shared.assembly.status import store_problem
from shared.status.model import (
    Counts,
    DeadLetters,
    Health,
    Heartbeat,
    InstanceStatus,
    Obstacle,
    Place,
    Point,
    RecentReject,
    Reconciliation,
    SiteStatus,
    State,
    Status,
    TaskStatus,
)
from shared.tasks.files import load

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "config/examples"
HOSTILE = "\u202eevil\x1b[31m\x00"


def task(number: int, state: State = State.IDLE, **options: object) -> TaskStatus:
    found = TaskStatus(
        task=f"orders-of-the-{number:03}th-factory-west-to-east",
        state=state,
        source=Place("west", f"orders-{number}"),
        source_kind="service-bus",
        targets=[Place("east", f"orders-{number}")],
        backlog=0,
        lag=0.0,
        in_hand=0,
        rate=0.0,
        last_hour=Counts(),
        dead_letters=[DeadLetters(Place("west", f"orders-{number}"), 0)],
        instances=1,
    )
    for name, value in options.items():
        setattr(found, name, value)
    return found


def status(tasks: list[TaskStatus]) -> Status:
    return Status(
        time="2026-11-23T10:30:00Z",
        health=Health.ATTENTION,
        sentence="1 of 100 tasks needs attention: orders is held.",
        tasks=tasks,
        sites=[SiteStatus(site="west", kind="service-bus", reachable=True)],
        instances=[
            InstanceStatus(
                instance="i",
                alive=True,
                started="2026-11-23T09:30:00Z",
                reported="2026-11-23T10:29:58Z",
                clock_ahead=0.1,
            )
        ],
        reconciliation=Reconciliation("2026-11-22", "clean", "12 messages.", "https://account/nightly/report.html"),
        last_hour=Reconciliation(
            "2026-11-23T09", "findings", "9 messages: 1 missing.", "https://account/hour/report.html"
        ),
    )


def hundred() -> list[TaskStatus]:
    tasks = [task(number) for number in range(97)]
    obstacle = Obstacle("east/orders", "refused", "it is disabled", "2026-11-23T10:25:00Z")
    tasks.append(
        task(
            97, State.HELD, backlog=12_345_678, backlog_is_minimum=True, lag=90_000.0, obstacles=[obstacle],
            reason="east/orders: the target refuses to take messages, it is disabled: com.microsoft:entity-disabled",
            since="2026-11-23T10:25:00Z", recent_rejects=[RecentReject("2026-11-23T10:20:00Z", HOSTILE, HOSTILE)],
        )
    )  # fmt: skip
    tasks.append(task(98, State.RUNNING, backlog=7, lag=0.42, rate=1234.5))
    why = "west/orders-99: no permission to look into it, which needs the right to listen"
    tasks.append(
        task(99, State.UNKNOWN, backlog=None, lag=None, rate=None, reason=why, unknown={"backlog": why, "lag": why})
    )
    return tasks


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("everything", [True, False])
def test_no_line_is_longer_than_the_terminal(width: int, everything: bool) -> None:
    text = status_text(status(hundred()), width, everything=everything, has_color=False)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("1 of 100 tasks needs attention")
    ends = [[match.end() for match in re.finditer(r"\S+(?: \S+)*", line)][-1] for line in lines[2:5]]
    assert len(set(ends)) == 1, "figures of a row stay in their columns"
    assert len(lines) > 100 if everything else len(lines) < 24


def test_what_needs_attention_comes_first_with_its_reason() -> None:
    text = status_text(status(hundred()), 80, everything=False, has_color=False)
    rows = text.splitlines()[3:7]
    assert [re.findall(r"held|unknown|running|idle", row)[0] for row in rows] == ["held", "unknown", "running", "idle"]
    assert "12.3M+" in rows[0]
    assert "?" in rows[1]
    assert rows[3] == "and 97 idle tasks with nothing to report (--all shows them)"
    assert "is held for 5 min: east/orders: the target refuses" in " ".join(text.split())
    assert " ".join(text.split()).count("no permission to look into it") == 1


def test_a_name_from_outside_cannot_act_on_the_terminal() -> None:
    held = task(1, State.HELD, reason=HOSTILE, since=HOSTILE)
    text = status_text(status([held]), 80, everything=True, has_color=False)
    assert all(line.isprintable() for line in text.splitlines())


def test_a_status_is_valid_by_its_schema_and_another_document_is_not() -> None:
    validator = Draft202012Validator(json.loads(schema_text("status")))
    validator.validate(to_builtins(status(hundred())))
    validator.validate({
        "version": 1, "first": "2026-11-23T10:00:00Z", "last": "2026-11-23T10:30:00Z",
        "tasks": {"copy": [to_builtins(Point("2026-11-23T10:00:00Z", 1, 0, 0, 0, None))]},
    })  # fmt: skip
    assert not validator.is_valid({"version": 1, "tasks": []})


def test_an_unknown_task_is_reported_and_without_app_settings_everything_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("WEST", "EAST", "BUSWAY_RECONCILIATION", "AzureWebJobsStorage", "AzureWebJobsStorage__accountName"):
        monkeypatch.delenv(name, raising=False)
    for arguments, problem in (
        (["oders"], "oders: unknown task (expected one of "),
        ([], "AzureWebJobsStorage: the app setting is missing"),
        ([], "WEST: the app setting is missing"),
    ):
        result = CliRunner().invoke(app, ["status", *arguments, "--config", str(EXAMPLES / "plain-copy")])
        assert (result.exit_code, problem in " ".join(result.output.split())) == (2, True)


@pytest.mark.parametrize(
    ("journal", "settings", "problem"),
    [
        ("", {"AzureWebJobsStorage__accountName": "mystorage"}, None),
        ("", {"AzureWebJobsStorage__blobServiceUri": "https://mystorage.blob.core.windows.net"}, None),
        ("blob: {setting: JOURNAL}\n", {"AzureWebJobsStorage__accountName": "mystorage"}, "JOURNAL: the app setting"),
        ("blob: {setting: JOURNAL}\n", {"JOURNAL__blobServiceUri": "https://mystorage.blob.core.windows.net"}, None),
    ],
)
def test_the_status_is_beside_the_journal_or_in_the_storage_of_the_host(
    tmp_path: Path, journal: str, settings: dict[str, str], problem: str | None
) -> None:
    shutil.copytree(EXAMPLES / "plain-copy", tmp_path, dirs_exist_ok=True)
    if journal:
        (tmp_path / "journal.yaml").write_text(journal)
    found = store_problem(load(tmp_path), settings)
    assert found is None if problem is None else found is not None and found.startswith(problem)


def heartbeat(route: int = 0, **options: object) -> Heartbeat:
    fields: dict[str, object] = {"arrived": "2026-11-23T10:29:40Z", "latency": 0.162, **options}
    return Heartbeat(route=route, target=Place("east", "orders"), every=60.0, **fields)  # type: ignore[arg-type] # a test's


def test_heartbeats_are_below_the_table_those_that_are_missed_with_their_reason() -> None:
    missed = heartbeat(arrived="2026-11-23T10:25:00Z", missed=True, reason="east/orders: it is disabled")
    never = heartbeat(arrived=None, latency=None, missed=True, reason="no instance has sent one")
    tasks = [task(1, heartbeats=[missed]), task(2, heartbeats=[never]), task(3, heartbeats=[heartbeat(latency=2.04)])]
    tasks.append(task(4, State.PAUSED, heartbeats=[heartbeat()]))
    text = status_text(status(tasks), 80, everything=False, has_color=False)
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    expected = "for 5 min no heartbeat has reached east/orders (one every 1 min): east/orders: it is disabled"
    assert f"001th-factory-west-to-east misses heartbeats: {expected}" in words
    assert "002th-factory-west-to-east misses heartbeats: no heartbeat has reached east/orders" in words
    assert words.count("last heartbeats: orders-of-the-003th-factory-west-to-east to east/orders 2.0 s") == 1
    assert "004th-factory-west-to-east to" not in words


def test_a_task_that_misses_heartbeats_is_shown_among_many_idle_ones() -> None:
    tasks = [task(number) for number in range(50)] + [task(50, heartbeats=[heartbeat(missed=True, reason="x")])]
    rows = status_text(status(tasks), 80, everything=False, has_color=False).splitlines()[3:5]
    assert rows[0].startswith("orders-of-the-050th")
    assert rows[1] == "and 50 idle tasks with nothing to report (--all shows them)"
