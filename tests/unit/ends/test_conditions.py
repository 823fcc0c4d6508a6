"""The table of conditions: every output follows it, and docs/runbook.md shows it."""

from pathlib import Path

import pytest

from shared.ends.conditions import (
    INVALID,
    MISSING,
    REACTIONS,
    THROTTLED,
    UNREACHABLE,
    Reaction,
    as_error,
    reaction_to,
)
from shared.errors import MessageRejected, TargetRefused, TargetUnavailable

PAGE = Path(__file__).parents[3] / "docs" / "runbook.md"


@pytest.mark.parametrize("row", REACTIONS, ids=lambda row: row.name)
def test_the_page_shows_the_row(row: Reaction) -> None:
    shown = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {row.name} |")]
    assert len(shown) == 1
    _, _, conditions, becomes, *_ = shown[0].split("|")
    assert {each.strip(" `") for each in conditions.split(",")} == set(row.conditions) or row is UNREACHABLE
    assert becomes.strip() == row.error.__name__


def test_no_condition_is_in_two_rows() -> None:
    conditions = [condition for row in REACTIONS for condition in row.conditions]
    assert len(conditions) == len(set(conditions))


def test_what_is_in_no_row_is_an_outage_unless_the_sdk_says_more() -> None:
    assert reaction_to("com.example:new") is UNREACHABLE
    assert reaction_to(None) is UNREACHABLE
    assert reaction_to(None, MISSING) is MISSING
    assert reaction_to("com.microsoft:server-busy", MISSING) is THROTTLED


def test_a_busy_service_is_left_alone_for_as_long_as_it_asks() -> None:
    error = as_error(THROTTLED, "east/orders", "seen", OSError())
    assert isinstance(error, TargetUnavailable)
    assert error.retry_after is not None
    assert error.retry_after.total_seconds() == 10


def test_an_error_says_where_and_what_was_seen() -> None:
    cause = OSError("secret")
    for row, kind in ((MISSING, TargetRefused), (INVALID, MessageRejected)):
        error = as_error(row, "east/orders", "SomeError (amqp:x)", cause)
        assert type(error) is kind
        assert "east/orders: " in str(error)
        assert "SomeError (amqp:x)" in str(error)
        assert "secret" not in str(error)
        assert error.__cause__ is cause
