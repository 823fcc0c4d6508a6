"""The conditions of the services, each with the row of the table that says what it becomes."""

from shared.ends.conditions import REACTIONS, UNREACHABLE, Reaction
from shared.errors import BuswayError

ROWS_OF_CONDITIONS = [
    *((condition, row) for row in REACTIONS for condition in row.conditions),
    ("com.example:never-heard-of", UNREACHABLE),
]


def check_is_of(error: BuswayError, row: Reaction) -> None:
    """Check that an error is what a row of the table says."""
    assert type(error) is row.error
    assert row.text in str(error)
    assert getattr(error, "retry_after", None) == row.retry_after
