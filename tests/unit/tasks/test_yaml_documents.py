"""What is said about a file that is not YAML: where, what, and what to do, without the words of a parser."""

import re
from pathlib import Path

import pytest

from shared.errors import Problem
from shared.tasks.yaml_documents import documents_in

# A content, the place of the problem, and a part of its text.
FILES = (
    ("task: a\n\tsource: b\n", "line 2, column 1", "has a tab (indent with spaces)"),
    ("source: b: c\n", "line 1, column 10", "has a second `: ` in the line"),
    ("when: priority > 5\naction: SET x = 'a': 'b'\n", "line 2, column 20", "has a second `: ` in the line"),
    ("task: [a\nsource: b\n", "line 1, column 7", "the list that begins here has no end"),
    ("source: {connection: west\nroutes: []\n", "line 1, column 9", "what begins here with { has no end"),
    ('task: "a\nsource: b\n', "line 1, column 7", "has no closing quote"),
    ("routes:\n  - target: x\n when: y\n", "line 3, column 2", "does not fit the lines above it"),
    ("when: 'it's'\n", "line 1, column 11", "does not fit the lines above it"),
    ("task: @a\n", "line 1, column 7", "put a text into quotes"),
    ("where: *\n", "line 1, column 9", "put a text into quotes"),
    ("a: *b\n", "line 1, column 4", "begins with *"),
    ("a: !!python/object x\n", "line 1, column 4", "begins with !"),
    ("a:\n- b\nc\n", "line 3, column 1", "is not `key: value`"),
    ("a: {b: c,, d: e}\n", "line 1, column 10", "lacks a value here"),
    ("a: - b\n", "line 1, column 4", "an item `- ` behind something else"),
    ("a: 1\na: 2\n", "line 2, column 1", "duplicate key 'a'"),
    ("? [a]\n: b\n", "line 1, column 3", "has a list or a mapping as a key"),
    ("<<: 3\n", "line 1, column 5", "has a `<<` with something else"),
    ("a: 2026-13-45\n", "", "has an invalid date or number: month must be in 1..12"),
    ("a: !!int x\n", "", "has an invalid date or number"),
    ("a: \x07\n", "", "has a character that no text may have"),
    ("a: " + "[" * 60, "line 1, column 64", "lacks a value here"),
)
JARGON = re.compile("scanning|parsing|scalar|flow|mapping values|block end|token|stream|<unicode|simple key")


@pytest.mark.parametrize(("content", "place", "text"), FILES, ids=[text for _, _, text in FILES])
def test_a_file_that_is_no_yaml_is_reported_in_plain_words(tmp_path: Path, content: str, place: str, text: str) -> None:
    file, problems = tmp_path / "task.yaml", list[Problem]()
    file.write_text(content)
    assert list(documents_in(file, problems)) == []
    (problem,) = problems
    assert problem.path == (f"{file}: {place}" if place else str(file))
    assert text in str(problem)
    assert not JARGON.search(str(problem))
