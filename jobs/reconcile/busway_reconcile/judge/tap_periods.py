"""The periods in which taps observed their targets: a tap cannot miss messages that were sent before or after."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.compact.records import current_name
from busway_reconcile.journal import schema
from busway_reconcile.journal.columns import micros
from busway_reconcile.journal.hours import micros_of
from busway_reconcile.journal.problems import Problem
from busway_reconcile.judge.tasks import TaskActivity
from busway_reconcile.settings import Settings

SILENT_AFTER = 20
"""Sent messages without a record of the tap after which the tap is reported as silent."""


@dataclass(frozen=True)
class TapPeriod:
    """The period of the draining taps at one target: they saw every copy sent there between *since* and *until*."""

    taps: tuple[str, ...]
    since: datetime
    last: datetime
    """The time of their last record."""
    until: datetime | None = None
    """None if they observed until the end of the window."""
    is_new: bool = False
    """The task had sent there before their first record, and no earlier run knows them."""
    is_absent: bool = False
    """They have no record of many messages of this window: these rely on the replicator's own journal."""
    is_removed: bool = False
    """They were removed on purpose: only the open messages of their time still rely on them."""

    def to_dict(self) -> dict[str, Any]:
        """Return what the next run needs to know."""
        removed = {"removed": True} if self.is_removed else {}
        return {"taps": self.taps, "since": self.since.isoformat(), "last": self.last.isoformat(), **removed}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TapPeriod":
        """Return the period in the summary of an earlier run."""
        since, last = (datetime.fromisoformat(values[name]) for name in ("since", "last"))
        return cls(tuple(values["taps"]), since, last, is_removed=bool(values.get("removed")))


Periods = Mapping[str, Mapping[str, TapPeriod]]
"""By task and target."""


class Observed(NamedTuple):
    """The tap periods of a run, the activity of its tasks with the taps that count, and problems and notes."""

    periods: dict[str, dict[str, TapPeriod]]
    tasks: dict[str, TaskActivity]
    problems: list[Problem]
    notes: list[str]


def earlier_periods(
    watches: Mapping[str, Mapping[str, Mapping[str, Any]]], renamed: Mapping[str, str]
) -> dict[str, dict[str, TapPeriod]]:
    """Return the periods in the summary of the previous run, under the current names of the tasks."""
    found: dict[str, dict[str, TapPeriod]] = defaultdict(dict)
    for task, by_target in watches.items():
        found[current_name(task, renamed)] |= {target: TapPeriod.from_dict(each) for target, each in by_target.items()}
    return dict(found)


def observed_periods(tasks: Mapping[str, TaskActivity], before: Periods, end: datetime, settings: Settings) -> Observed:
    """
    Return the tap periods of a window that ends at *end*; *before* are those of the previous run.

    A known tap without a record of the few messages of this window may still be slow: it counts as a tap of its task.
    """
    periods: dict[str, dict[str, TapPeriod]] = {}
    problems, notes = [], []
    active = dict(tasks)
    for task in sorted({*before, *tasks}):
        one = tasks.get(task, TaskActivity(task))
        periods[task] = task_periods(one, before.get(task, {}), end, settings)
        counted = defaultdict(set, {target: set(taps) for target, taps in one.target_taps.items()})
        notes += [
            f"{task}: its tap at {target} was removed on purpose; the evidence there is the replicator's own"
            for target, period in periods[task].items()
            if period.is_removed and not before[task][target].is_removed
        ]
        for target, period in periods[task].items():
            if period.is_absent:
                text = (
                    f"its tap at {target} has no record in this window; its last one was at "
                    f"{period.last:%Y-%m-%d %H:%M:%S}. {one.sent[target]} messages were sent there: their verdicts "
                    "rely on the replicator's own journal"
                )
                problems.append(Problem("silent-tap", task, text))
            elif one.sent.get(target) and not period.is_removed:
                counted[target] |= set(period.taps)
            if period.is_new:
                notes.append(
                    f"{task}: its tap at {target} is new; messages sent there before "
                    f"{period.since:%Y-%m-%d %H:%M:%S} that it did not see are undecided"
                )
        if task in tasks:
            active[task] = replace(one, target_taps=counted)
    return Observed({task: found for task, found in periods.items() if found}, active, problems, notes)


def task_periods(
    one: TaskActivity, before: Mapping[str, TapPeriod], end: datetime, settings: Settings
) -> dict[str, TapPeriod]:
    """Return the tap period at each target of a task; *before* are those of the previous run, *end* ends the window."""
    # One that comes back after it was removed did not observe the time in between.
    without_gap = {target: known for target, known in before.items() if not known.is_removed}
    found = {target: _period(one, target, without_gap.get(target), settings) for target in one.target_taps}
    for target, known in before.items():
        # A removed tap looks like a dead one; it is dropped when its records would come too late for open messages.
        if target not in found and end - known.last <= settings.open_for:
            first = one.first_sent.get(target)
            is_removed = known.is_removed or f"{one.task}={target}" in settings.removed_taps
            is_silent = first is not None and first <= end - settings.grace and one.sent[target] >= SILENT_AFTER
            until = known.last - settings.clock_tolerance
            found[target] = TapPeriod(
                known.taps,
                known.since,
                known.last,
                until,
                is_absent=is_silent and not is_removed,
                is_removed=is_removed,
            )
    return found


def _period(one: TaskActivity, target: str, before: TapPeriod | None, settings: Settings) -> TapPeriod:
    taps = tuple(sorted(one.target_taps[target]))
    first, last = one.first_seen[target], one.last_seen[target]
    first_sent, last_sent = one.first_sent.get(target, first), one.last_sent.get(target, last)
    # Neither the clocks nor the tap's position when it stopped are known to the second.
    tolerance = settings.clock_tolerance
    until = None if last_sent - last <= tolerance else last - tolerance
    if before is not None:
        return TapPeriod(taps, before.since, last, until)
    if first - first_sent <= tolerance:
        return TapPeriod(taps, min(first, first_sent), last, until)
    return TapPeriod(taps, first + tolerance, last, until, is_new=True)


def with_proven_ends(periods: Periods, records: DataFrame, start: datetime) -> Periods:
    """
    Return *periods* without the ends in the window from *start* on after which no message was missed.

    A tap seems to have ended if its last record is long before the last one of the task. So does one that goes on, if
    the target took the last message at once and answered late. KEYED records in.
    """
    return {
        task: {
            target: replace(period, until=None)
            if period.until is not None and period.last >= start and not _has_missed(records, task, target, period)
            else period
            for target, period in by_target.items()
        }
        for task, by_target in periods.items()
    }


def _has_missed(records: DataFrame, task: str, target: str, period: TapPeriod) -> bool:
    is_later = (F.col("outcome") == "sent") & (micros("journal_time") > micros_of(period.last))
    is_seen = F.col("observer") == "tap"
    messages = records.where((F.col("task") == task) & (F.col("target") == target)).groupBy(*schema.KEY)
    later = messages.agg(F.max(is_later).alias("is_later"), F.max(is_seen).alias("is_seen"))
    return not later.where("is_later and not is_seen").isEmpty()


def silent_taps(periods: Periods, records: DataFrame, end: datetime, settings: Settings) -> list[Problem]:
    """Return a problem for each tap without a record of many messages that it should have seen by *end*."""
    settled = F.lit(micros_of(end - settings.grace))
    problems = []
    each = ((task, *one) for task, by_target in sorted(periods.items()) for one in sorted(by_target.items()))
    for task, target, period in each:
        if period.until is None or period.is_absent or period.is_removed:
            continue
        sent_there = (F.col("task") == task) & (F.col("target") == target) & (F.col("outcome") == "sent")
        missed = records.where(sent_there & micros("journal_time").between(micros_of(period.last), settled)).count()
        if missed >= SILENT_AFTER:
            text = (
                f"its tap at {target} has no record after {period.last:%Y-%m-%d %H:%M:%S}; "
                f"{missed} messages were sent there since"
            )
            problems.append(Problem("silent-tap", task, text))
    return problems
