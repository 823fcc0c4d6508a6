"""`busway check` warns of regular expressions for which a short text takes exponential time, and of no others."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from shared.review.expressions import nested_quantifier

SLOW = [
    "^(a+)+$",
    "^(a*)*$",
    r"^(\w+\s?)*$",
    r"^([a-zA-Z0-9_.-]+)*@x$",
    r"^(\w|.)*$",
    "^(aa?)+$",
    "^(a{1,2})*$",
    "^(a|aa?)+$",
    "^((a+)b?)*$",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    "^(a+?){10,}$",
    r"^(\d+[\d,]*)+$",
    "(x+x+)+y",
]
QUICK = [
    "^[a-z]+(-[a-z]+)*$",
    r"^\d{4}-\d\d-\d\d$",
    r"^([^,]+,)*[^,]+$",
    r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
    r"^(a+){2}$",
    r"^(?:\d{1,3}\.){3}\d{1,3}$",
    r"^([A-Z]{2}|[a-z]{2})+$",
    r"^(\"[^\"]*\"|[a-z])*$",
    "^(ab|cd)*$",
    r"^(\w|\d)*$",  # `re` makes one class of it
    "^(?:foo|foobar)*$",
    "^(a?)*b$",
    "^(ab?)*$",
    r"^\p",
    "^(?>a+)+$",
    "(",
]
# The longest run of each sample that `re` is given: `a`s, digits, and a mixture, with an end that does not match.
SAMPLES = ("a", "x", "1", "a1", "a ")
# Of the processor, so that a busy machine makes no expression slow. A quick search takes some microseconds.
SECONDS = 0.03


@pytest.mark.parametrize("pattern", SLOW)
def test_nested_quantifiers_are_found(pattern: str) -> None:
    assert nested_quantifier(pattern)


@pytest.mark.parametrize("pattern", SLOW)
def test_they_are_slow_indeed(pattern: str) -> None:
    expression = re.compile(pattern)
    with pytest.raises(TimeoutError), stopped_after(SECONDS):
        search_samples(expression)


@contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Raise TimeoutError within the context once it has used the processor for *seconds*."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def search_samples(expression: re.Pattern[str]) -> None:
    for text in SAMPLES:
        expression.search(text * 60 + "\n!")


@pytest.mark.parametrize("pattern", QUICK)
def test_other_expressions_are_not(pattern: str) -> None:
    assert nested_quantifier(pattern) is None
    try:
        expression = re.compile(pattern)
    except re.error:
        return
    for text in (*SAMPLES, "-a", '"a'):
        expression.search(text * 2000 + "\n!")


def test_check_names_file_path_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "schemas").mkdir()
    (tmp_path / "connections.yaml").write_text(
        "west: {kind: service-bus, setting: WEST}\neast: {kind: service-bus, setting: EAST}\n"
    )
    (tmp_path / "tasks" / "copy.yaml").write_text(
        "task: copy\nsource: {connection: west, queue: orders}\n"
        "editors: [{validate: {schema: schemas/order.json}}]\n"
        "routes: [{target: {connection: east, queue: orders}}]\n"
    )
    schema = {
        "properties": {
            "id": {"pattern": "^(a+)+$"},
            "pattern": {"type": "string", "pattern": "^[a-z]+$"},
            "lines": {"items": {"$ref": "line.json"}},
        },
        "examples": [{"pattern": "^(b+)+$"}],
    }
    (tmp_path / "schemas" / "order.json").write_text(json.dumps(schema))
    line = {"patternProperties": {r"^(\w+|.)*$": {"type": "string"}}}
    (tmp_path / "schemas" / "line.json").write_text(json.dumps(line))
    result = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert result.exit_code == 0
    warnings = [line for line in result.stderr.splitlines() if "slow-pattern" in line]
    assert len(warnings) == 2
    assert (
        "copy.yaml: editors[0].validate.schema: schemas/order.json: $.properties.id.pattern: '^(a+)+$'" in warnings[0]
    )
    assert "schemas/line.json: $.patternProperties" in warnings[1]
    assert "begin or end with a character that it does not contain" in warnings[0]
    assert CliRunner().invoke(app, ["check", "--strict", str(tmp_path)]).exit_code == 1
