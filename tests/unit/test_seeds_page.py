"""docs/contribute/seeds.md: every statement has a page and a test that exist, or the reason why it is not kept."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/contribute/seeds.md").read_text(encoding="utf-8")
_NOT, _SHORTEST_REASON = "Not: ", 20


def rows(page: str) -> list[list[str]]:
    """Return the cells of all rows."""
    lines = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| statement |")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def problems(page: str) -> Iterator[str]:
    """Yield what is wrong with the rows of *page*; that its links resolve is checked for all pages."""
    for statement, where, evidence in rows(page):
        if evidence.startswith(_NOT):
            if len(evidence) < len(_NOT) + _SHORTEST_REASON:
                yield f"{statement} has no reason"
            continue
        tests = re.findall(r"`([^`]+)`", evidence)
        if "](" not in where:
            yield f"{statement} has no page"
        if not tests:
            yield f"{statement} has no test"
        yield from (f"{statement} {test} does not exist" for test in tests if not _exists(test))


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.is_file() and (not name or f"def {name}(" in file.read_text(encoding="utf-8"))


def test_every_statement_has_a_page_and_a_test_or_a_reason() -> None:
    assert list(problems(PAGE)) == []
    kept = [row for row in rows(PAGE) if not row[2].startswith(_NOT)]
    assert f"{len(kept)} statements are kept, {len(rows(PAGE)) - len(kept)} are not." in PAGE


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("| Bare. | - | `tests/unit/test_pages.py` |", "Bare. has no page"),
        ("| Bare. | [kafka](kafka.md) | - |", "Bare. has no test"),
        ("| Lazy. | - | Not: later. |", "Lazy. has no reason"),
        ("| Gone. | [kafka](kafka.md) | `tests/unit/test_moon.py` |", "Gone. tests/unit/test_moon.py does not exist"),
        (
            "| Gone. | [kafka](kafka.md) | `tests/unit/test_pages.py::test_moon` |",
            "Gone. tests/unit/test_pages.py::test_moon does not exist",
        ),
    ],
)
def test_a_row_without_what_keeps_it_is_a_problem(row: str, problem: str) -> None:
    assert list(problems(row)) == [problem]
