"""The tasks of a window: their activity, their renamings, and the gaps in their journals."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from busway_reconcile.compact.hours import Hour
from busway_reconcile.compact.records import CompactedRecords, current_name
from busway_reconcile.journal.hours import hours_between
from busway_reconcile.journal.problems import Problem
from busway_reconcile.judge.gaps import hours_around, is_gap, journal_gaps, missing_sides, without_held_batches
from busway_reconcile.judge.renames import possible_renames, rename_problems, still_renamed, without_second_readers
from busway_reconcile.judge.tasks import TaskActivity, activity_by_task
from busway_reconcile.settings import Run
from busway_reconcile.summary import Summary


class TaskHistory(NamedTuple):
    """The rows of coverage and the activity of tasks, both under current names, with problems and notes."""

    coverage: list[dict[str, Any]]
    tasks: dict[str, TaskActivity]
    renamed: dict[str, str]
    problems: list[Problem]
    notes: list[str]


def task_history(
    spark: SparkSession, run: Run, hours: Sequence[str], made: Mapping[str, Hour], previous: Summary | None
) -> TaskHistory:
    """Return the tasks of *hours*; *made* are the compacted hours, *previous* is the summary of the previous run."""
    tasks_before = previous.tasks if previous else []
    coverage = [{"landed": hour, **row} for hour in hours for row in made[hour].coverage]
    renamed = still_renamed(previous.renamed if previous else {}, {row["task"] for row in coverage})
    before = {summary.task: {"sources": summary.sources, "last": summary.last} for summary in tasks_before}
    found = possible_renames(activity_by_task(coverage), before)
    if found:
        known = hours_between(run.window.start - run.settings.open_for, run.window.start)
        records = CompactedRecords(spark, run.compacted, renamed).of([*known, *hours])
        found = without_second_readers(found, records)
    renamed |= found
    problems = [*rename_problems(found), *journal_gaps(coverage, renamed)]
    coverage = [{**row, "task": current_name(row["task"], renamed)} for row in coverage if not is_gap(row)]
    missing = missing_sides(coverage)
    if missing:
        around = [hour for hour in hours_around(missing) if hour <= hours[-1]]
        missing = without_held_batches(missing, CompactedRecords(spark, run.compacted, renamed).of(around))
    tasks = activity_by_task(coverage)
    notes = [
        f"{summary.task}: no record in this window; the last one was at {summary.last}"
        for summary in tasks_before
        if summary.last and current_name(summary.task, renamed) not in tasks
    ]
    return TaskHistory(coverage, tasks, renamed, [*problems, *missing], notes)
