"""The check of plain English (tools/check-english) finds the words in tools/words-to-avoid.tsv."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = runpy.run_path(str(ROOT / "tools" / "check-english"))
RULES = CHECK["rules"]((ROOT / "tools" / "words-to-avoid.tsv").read_text(encoding="utf-8"))


def findings(text: str) -> list[str]:
    found: list[str] = CHECK["findings"]("page.md", text, RULES)
    return found


@pytest.mark.parametrize(
    "words",
    [
        "was told",
        "test_fault_is_told",
        "retried for ever",
        "opened anew",
        "what became of it",
        "is in the way no more",
        "Whoever asks",
    ],
)
def test_a_listed_word_is_found_with_its_place(words: str) -> None:
    found = findings(f"A plain line.\nThis line has: {words}.\n")
    assert found
    assert all(finding.startswith("page.md:2: ") for finding in found)


@pytest.mark.parametrize(
    "line",
    ["orders-west-to-east: east/payments recovered after 312 s", "choose one of --json, --az", "a foretold stand"],
)
def test_plain_words_pass(line: str) -> None:
    assert findings(line) == []


def test_a_file_without_patterns_has_no_rules() -> None:
    assert CHECK["rules"]("# Words to avoid\n\nNo tab here.\n") == []
