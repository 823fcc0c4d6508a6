"""Manifests of a repair."""

import json
from pathlib import Path

import pytest

from cli.repair.manifest import Missing, read

SEPARATORS = ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"]


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_line_separator_in_a_message_id_does_not_end_a_line(tmp_path: Path, separator: str) -> None:
    row = {"task": "t", "src_site": "west", "src_entity": "orders", "message_id": f"a{separator}b"}
    head = {"manifest": 1, "messages": 1, "missing": 1}
    path = tmp_path / "repair.jsonl"
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in (head, row)), encoding="utf-8")
    (missing,), beyond = read(path)
    assert (missing.message_id, beyond) == (f"a{separator}b", 0)


def test_a_name_for_people_has_no_control_characters() -> None:
    message = Missing("t", "west", "orders", None, 1, 1, "\x1b]0;owned\x07\u202e\n a", None, None, 0, ())
    assert message.name == r"t: \x1b]0;owned\x07\u202e\n a, sequence number 1"
