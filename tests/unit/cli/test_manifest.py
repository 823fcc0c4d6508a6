"""Manifests of a repair, and the states of repaired messages."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.repair.manifest import Ledger, Missing, read
from shared.errors import ConfigError

ROOT = Path(__file__).parents[3]

SEPARATORS = ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_line_separator_in_a_message_id_does_not_end_a_line(tmp_path: Path, separator: str) -> None:
    row = {"task": "t", "src_site": "west", "src_entity": "orders", "message_id": f"a{separator}b"}
    head = {"manifest": 1, "messages": 1, "missing": 1}
    path = tmp_path / "repair.jsonl"
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in (head, row)), encoding="utf-8")
    (missing,), beyond = read(path)
    assert (missing.message_id, beyond) == (f"a{separator}b", 0)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_line_separator_in_a_key_does_not_end_a_line_of_the_ledger(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "ledger.jsonl"
    message = Missing("t", "west", f"a{separator}b", None, 1, 1, None, None, None, 0, ())
    path.write_text(json.dumps({"key": message.key, "state": "sent"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert Ledger(path).state(message) == "sent"


def test_a_name_for_people_has_no_control_characters() -> None:
    message = Missing("t", "west", "orders", None, 1, 1, "\x1b]0;owned\x07\u202e\n a", None, None, 0, ())
    assert message.name == r"t: \x1b]0;owned\x07\u202e\n a, sequence number 1"


def test_a_second_repair_cannot_open_the_ledger_and_reads_what_the_first_has_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    message = Missing("t", "west", "orders", None, 1, 1, None, None, None, 0, ())
    first, second = Ledger(path), Ledger(path)
    with first:
        first.note(message, "sent")
        with pytest.raises(ConfigError, match="is in use by process"), second:
            pass
    with second:
        assert second.state(message) == "sent"


def test_the_lock_of_a_process_that_was_killed_is_not_stale(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    hold = "import sys, time; from pathlib import Path; from cli.repair.manifest import Ledger\n"
    hold += "with Ledger(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
    process = subprocess.Popen([sys.executable, "-c", hold, str(path)], stdout=subprocess.PIPE, cwd=ROOT)  # noqa: S603 - the text above
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    with pytest.raises(ConfigError, match=f"process {process.pid}"), Ledger(path):
        pass
    process.kill()
    process.communicate()
    with Ledger(path) as ledger:
        assert ledger.path == path
