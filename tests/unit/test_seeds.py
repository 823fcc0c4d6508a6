"""tests/seeds.yaml: every statement has a section of a page and tests."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.pages import anchor

ROOT = Path(__file__).parents[2]
SEEDS = yaml.safe_load((ROOT / "tests/seeds.yaml").read_text(encoding="utf-8"))


def problems(seed: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a statement."""
    statement = seed["statement"]
    if not seed["pages"]:
        yield f"{statement} has no page"
    if not seed["tests"]:
        yield f"{statement} has no test"
    yield from (f"{statement} {name} does not exist" for name in seed["pages"] if not _has_section(name))
    yield from (f"{statement} {name} does not exist" for name in seed["tests"] if not _has_test(name))


def _has_section(link: str) -> bool:
    path, _, section = link.partition("#")
    page = ROOT / path
    return page.is_file() and (
        not section or section in map(anchor, re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE))
    )


def _has_test(name: str) -> bool:
    path, _, function = name.partition("::")
    file = ROOT / path
    return file.is_file() and (not function or f"def {function}(" in file.read_text(encoding="utf-8"))


def test_every_statement_has_a_page_and_a_test() -> None:
    found = [seed for article in SEEDS.values() for seed in article]
    assert [problem for seed in found for problem in problems(seed)] == []
    assert len(found) > 100


@pytest.mark.parametrize(
    ("page", "test", "problem"),
    [
        (None, "tests/unit/test_pages.py", "Gone. has no page"),
        ("docs/kafka.md", None, "Gone. has no test"),
        ("docs/kafka.md#moon", "tests/unit/test_pages.py", "Gone. docs/kafka.md#moon does not exist"),
        ("docs/kafka.md", "tests/unit/test_moon.py", "Gone. tests/unit/test_moon.py does not exist"),
        (
            "docs/kafka.md",
            "tests/unit/test_pages.py::test_moon",
            "Gone. tests/unit/test_pages.py::test_moon does not exist",
        ),
    ],
)
def test_a_statement_without_what_keeps_it_is_a_problem(page: str | None, test: str | None, problem: str) -> None:
    seed = {"statement": "Gone.", "pages": [page] if page else [], "tests": [test] if test else []}
    assert list(problems(seed)) == [problem]
