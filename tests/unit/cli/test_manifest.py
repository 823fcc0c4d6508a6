"""Manifests of a repair, and the states of repaired messages."""

import json
from pathlib import Path

import pytest

from cli.repair.manifest import Ledger, Missing, read

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
