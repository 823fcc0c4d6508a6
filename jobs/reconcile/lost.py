"""What a journal says of its own gaps: hours in which a task went on while it could not be written."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.reconcile.inputs import Problem, hour_of, hours_between, start_of
from jobs.reconcile.run import latest_name
from jobs.reconcile.schema import GAP

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def lost_records(coverage: Sequence[Mapping[str, Any]], names: dict[str, str]) -> list[Problem]:
    """Return the hours of gaps, from the rows of the coverage tables; *names* are those of tasks, old to new."""
    return [_problem(row, latest_name(row["task"], names)) for row in coverage if is_of_gap(row)]


def is_of_gap(row: Mapping[str, Any]) -> bool:
    """Tell of a row of coverage whether it is about the ends of gaps."""
    return bool(row["outcome"] == GAP)


def _problem(row: Mapping[str, Any], task: str) -> Problem:
    first, last = (hour_of(_EPOCH + timedelta(microseconds=row[name])) for name in ("first", "last"))
    hours = (*hours_between(start_of(first), start_of(last)), last)
    what = "that messages entered" if row["role"] == "source" else "what became of messages"
    text = f"its journal could not be written: records that say {what} are lost"
    where = f"{task}, {first}" if first == last else f"{task}, {first} to {last}"
    return Problem("journal-gap", where, text, task, row["role"], hours)
