"""docs/decisions/README.md: one line for each record, in order, and superseded ones are marked."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs/decisions"
ROW = re.compile(r"^\| \[(\d{4})\]\((\1-[a-z0-9-]+\.md)\) \| (.+) \|$", re.MULTILINE)
SUPERSEDED = re.compile(r"^Superseded\b", re.MULTILINE)


def problems(page: str, records: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the index *page* of *records*, texts by the name of their file."""
    rows = {file: decision for _, file, decision in ROW.findall(page)}
    listed = [file for _, file, _ in ROW.findall(page)]
    found = [] if listed == sorted(listed) else ["the lines are not in order"]
    found += [f"{file} has no line" for file in records if file not in rows]
    found += [f"{file} has several lines" for file in rows if listed.count(file) > 1]
    found += [f"{file} does not exist" for file in rows if file not in records]
    numbers = [file[:4] for file in records]
    found += [f"{file}: another record has its number" for file in records if numbers.count(file[:4]) > 1]
    for file, text in records.items():
        is_superseded = SUPERSEDED.search(text.partition("\n## ")[0]) is not None
        if file in rows and is_superseded != ("superseded" in rows[file]):
            found.append(f"{file}: record and line differ on whether it is superseded")
    return found


def test_the_index_has_one_line_for_each_record() -> None:
    records = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("[0-9]*.md"))}
    assert len(records) > 70
    assert problems((FOLDER / "README.md").read_text(encoding="utf-8"), records) == []


@pytest.mark.parametrize(
    ("page", "records", "problem"),
    [
        (
            "| [0002](0002-b.md) | b |\n| [0001](0001-a.md) | a |",
            ["0001-a.md", "0002-b.md"],
            "the lines are not in order",
        ),
        ("| [0001](0001-a.md) | a |", ["0001-a.md", "0002-b.md"], "0002-b.md has no line"),
        ("| [0001](0001-a.md) | a |\n| [0001](0001-a.md) | a |", ["0001-a.md"], "0001-a.md has several lines"),
        ("| [0001](0001-a.md) | a |", [], "0001-a.md does not exist"),
        (
            "| [0001](0001-a.md) | a; superseded by 0002 |",
            ["0001-a.md"],
            "0001-a.md: record and line differ on whether it is superseded",
        ),
    ],
)
def test_a_wrong_line_is_a_problem(page: str, records: list[str], problem: str) -> None:
    assert problem in problems(page, dict.fromkeys(records, "# A"))
