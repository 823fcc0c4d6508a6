"""Gaps in the evidence: hours that a journal reports as lost, and hours in which one side of a task is missing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.compact.hours import Hour
from busway_reconcile.compact.records import current_name
from busway_reconcile.journal import schema
from busway_reconcile.journal.columns import NUMBER
from busway_reconcile.journal.frames import frame_of
from busway_reconcile.journal.hours import hour_of, hours_between, moment_of, start_of
from busway_reconcile.journal.problems import Problem
from busway_reconcile.settings import HELD_HOURS

_HOUR = timedelta(hours=1)
_FLUSH = timedelta(minutes=5)
"""The longest time between the two records of a message that is sent at once."""
_LONGEST = timedelta(days=31)
"""A record may claim any time: of a longer gap, these are the last hours."""


def is_gap(row: Mapping[str, Any]) -> bool:
    """Return whether a row of coverage counts records about gaps."""
    return bool(row["outcome"] == schema.GAP)


def journal_gaps(coverage: Sequence[Mapping[str, Any]], renamed: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each gap in the rows of *coverage*; *renamed* are the renamings of tasks."""
    return [_journal_gap(row, current_name(row["task"], renamed)) for row in coverage if is_gap(row)]


def _journal_gap(row: Mapping[str, Any], task: str) -> Problem:
    ends = moment_of(row["first"]), moment_of(row["last"])
    first, last = hour_of(max(ends[0], ends[1] - _LONGEST)), hour_of(ends[1])
    hours = (*hours_between(start_of(first), start_of(last)), last)
    what = "entries" if row["role"] == "source" else "outcomes"
    text = f"the journal could not be written: records about the {what} of messages are lost"
    where = f"{task}, {first}" if first == last else f"{task}, {first} to {last}"
    return Problem("journal-gap", where, text, task, row["role"], hours)


def missing_sides(coverage: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """Return a problem for each hour in which a task recorded the entries or the outcomes of messages, not both."""
    seen: dict[tuple[str, str], dict[str, list[datetime]]] = defaultdict(lambda: defaultdict(list))
    for row in coverage:
        if row["observer"] == "task":
            seen[row["task"], row["landed"]][row["role"]] += [moment_of(row["first"]), moment_of(row["last"])]
        elif row["role"] == "target":
            seen[row["task"], row["landed"]]["tap"] += [moment_of(row["first"]), moment_of(row["last"])]
    problems = []
    for (task, hour), sides in sorted(seen.items()):
        start, end = start_of(hour), start_of(hour) + _HOUR
        if sides["source"] and not sides["target"] and min(sides["source"]) < end - _FLUSH:
            text = "the journal has entries of messages, but no outcomes"
            problems.append(Problem("side-missing", f"{task}, {hour}", text, task, "target", (hour,)))
        if sides["target"] and not sides["source"] and max(sides["target"]) > start + _FLUSH:
            text = "the journal has outcomes of messages, but no entries"
            problems.append(Problem("side-missing", f"{task}, {hour}", text, task, "source", (hour,)))
        if sides["tap"] and not sides["source"] and not sides["target"] and max(sides["tap"]) > start + _FLUSH:
            neighbours = [hour_of(start - _HOUR), hour_of(start + _HOUR)]
            if not any(seen.get((task, neighbour), {}).get("source") for neighbour in neighbours):
                text = "a tap saw copies of the task's messages, but the task's journal has no records"
                problems.append(Problem("side-missing", f"{task}, {hour}", text, task, "source", (hour,)))
    return problems


def damaged_hours(hours: Iterable[Hour]) -> list[str]:
    """Return those of *hours* of which records may be lost."""
    found = []
    for hour in hours:
        coverage = [{"landed": hour.hour, **row} for row in hour.coverage]
        if hour.problems or any(is_gap(row) for row in coverage) or missing_sides(coverage):
            found.append(hour.hour)
    return found


def hours_around(missing: Iterable[Problem]) -> set[str]:
    """Return the hours in which the missing sides of *missing* may be, because a batch was held."""
    return {
        hour_of(start_of(problem.hours[0]) + away * _HOUR)
        for problem in missing
        for away in range(-HELD_HOURS, HELD_HOURS + 1)
    }


def without_held_batches(missing: list[Problem], records: DataFrame | None) -> list[Problem]:
    """
    Return the *missing* sides that are not in a nearby hour.

    A batch that waits for its target has its two records up to HELD_HOURS apart. Shape: *records* of hours_around().
    """
    if records is None or not missing:
        return missing
    near = [
        (
            problem.task,
            problem.role,
            hour,
            hour_of(start_of(hour) + (away if problem.role == "target" else -away) * _HOUR),
        )
        for problem in missing
        for hour in problem.hours
        for away in range(HELD_HOURS + 1)
    ]
    hours = frame_of(records.sparkSession, near, "task string, lacks string, hour string, landed string")
    lacks_outcomes = F.col("lacks") == "target"
    received, outcome = F.col("outcome") == "received", F.col("outcome").isin("sent", "retry", *schema.WITHHELD)
    is_there = (F.col("landed") == F.col("hour")) & F.when(lacks_outcomes, received).otherwise(outcome)
    is_other = F.when(lacks_outcomes, outcome).otherwise(received)
    of_task = records.where("observer = 'task' and src_seq is not null").join(F.broadcast(hours), ["task", "landed"])
    held = (
        of_task.groupBy("lacks", "hour", *NUMBER)
        .agg(F.max(is_there).alias("there"), F.max(is_other).alias("other"))
        .groupBy("task", "lacks", "hour")
        .agg(F.max("there").alias("has_any"), F.max(F.col("there") & ~F.col("other")).alias("lacks_any"))
        .where("has_any and not lacks_any")
    )
    explained = {(row["task"], row["lacks"], row["hour"]) for row in held.collect()}
    return [problem for problem in missing if (problem.task, problem.role, problem.hours[0]) not in explained]


def unreliable_hours(problems: Iterable[Problem]) -> dict[str, dict[str, set[str]]]:
    """Return by role and task the hours in which records of that side may be lost."""
    found: dict[str, dict[str, set[str]]] = {"source": {}, "target": {}}
    for problem in problems:
        if problem.task is None:
            continue
        for role in schema.ROLES if problem.role is None else (problem.role,):
            # The two records of a message may be on both sides of the hour.
            away = -_HOUR if role == "target" else _HOUR
            hours = {*problem.hours, *(hour_of(start_of(hour) + away) for hour in problem.hours)}
            found[role][problem.task] = found[role].get(problem.task, set()) | hours
    return found
