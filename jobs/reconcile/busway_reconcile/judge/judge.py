"""The judgement of the selected messages, with the gaps of the evidence taken into account."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal.frames import frame_of, looked_up
from busway_reconcile.journal.hours import micros_of
from busway_reconcile.judge.cache import cut
from busway_reconcile.judge.dead_letters import mark_dead_letters
from busway_reconcile.judge.messages import MESSAGE, one_row_per_message
from busway_reconcile.judge.paths import mark_paths
from busway_reconcile.judge.tap_periods import Periods
from busway_reconcile.judge.tasks import TaskActivity
from busway_reconcile.judge.verdicts import CONTEXT, with_verdict
from busway_reconcile.settings import Settings


class Tasks(NamedTuple):
    """The tasks of a window: their activity, coverage and tap periods, and the tasks of the previous run."""

    active: Mapping[str, TaskActivity]
    coverage: Sequence[dict[str, Any]]
    coverage_before: Sequence[dict[str, Any]]
    """The coverage of the compacted hours before the window."""
    periods: Periods
    earlier: Sequence[TaskActivity]


def judge(
    records: DataFrame,
    loose: DataFrame | None,
    observed: DataFrame | None,
    tasks: Tasks,
    letters_before: Callable[[int], DataFrame | None],
    *,
    unreliable: Mapping[str, Mapping[str, set[str]]],
    end: datetime,
    settings: Settings,
) -> DataFrame:
    """
    Return one row with its verdict for each message of *records*.

    Shape:   KEYED *records*, the table *loose* of the window, all records *observed* in it and in hours before it, and
             *unreliable* as unreliable_hours() returns it, in; *letters_before* returns the records of the hours
             before the window, from a time on, that have dead letters. JUDGED out.
    """
    ends = {
        task: [
            {"target": target, "since": micros_of(each.since), "until": micros_of(each.until) if each.until else None}
            for target, each in by_target.items()
        ]
        for task, by_target in tasks.periods.items()
    }
    taps = looked_up("task", ends, "array<struct<target string, since bigint, until bigint>>")
    is_before = F.exists(taps, lambda tap: _has_part_sent(tap["target"], operator.lt, tap["since"]))
    is_after = F.exists(taps, lambda tap: _has_part_sent(tap["target"], operator.gt, tap["until"]))
    messages = one_row_per_message(records).withColumns(
        {
            "gap_in_outcomes": _is_in("entry_hours", unreliable["target"]) | F.col("is_doubted"),
            "gap_in_entries": _is_in("outcome_hours", unreliable["source"]),
            "is_before_tap": F.coalesce(is_before, F.lit(False)),
            "is_after_tap": F.coalesce(is_after, F.lit(False)),
        }
    )
    # Each of the next steps asks whether it has anything to do.
    messages = cut(mark_dead_letters(messages, loose, letters_before))
    checked = mark_paths(messages, observed, tasks.active, tasks.coverage, tasks.coverage_before)
    marked = mark_outages(checked, [*tasks.coverage, *tasks.coverage_before]).select(*MESSAGE, *CONTEXT)
    # A message without a number that only a peek saw proves nothing.
    verdicts = cut(with_verdict(marked.where("not is_glimpse"), end, settings))
    # An unreadable message is counted by its outcome. Spark would replace `verdict` by all that it is made of.
    return verdicts.where("verdict <> 'unreadable'")


def _has_part_sent(target: Column, compare: Callable[[Any, Any], Any], time: Column) -> Column:
    """Return whether some part was sent to *target* only at times that *compare* so with *time*."""

    def is_part(send: Column) -> Column:
        others = F.filter("sends_at_tap", lambda other: (other["target"] == target) & (other["part"] == send["part"]))
        return (send["target"] == target) & F.forall(others, lambda other: compare(other["at"], time))

    return F.exists("sends_at_tap", is_part)


def _is_in(column: str, hours: Mapping[str, set[str]]) -> Column:
    bad = looked_up("task", {task: sorted(some) for task, some in hours.items()}, "array<string>")
    return F.coalesce(F.arrays_overlap(F.col(column), bad), F.lit(False))


def mark_outages(messages: DataFrame, coverage: Iterable[Mapping[str, Any]]) -> DataFrame:
    """
    Return *messages* with `worked_before`, `worked_during` and `worked_after`.

    They are times at which the task finished messages: the last one before the life of the message that it had left,
    any one during it, and the first one after it; null where it finished none, or the message has no life.
    Units:   microseconds since 1970.
    Shape:   *coverage* are the rows of COVERAGE of the window and of hours before it.
    """
    # After a retry the task has the message no longer: what it finished before is no sign of the rest of its life.
    since = F.greatest("generation", F.col("last_retry"))
    unsent = messages.where("expires is not null and size(sent_parts) = 0")
    lives = (
        unsent.select("task", _hour(since).alias("first"), _hour(F.col("expires")).alias("last")).distinct().collect()
    )
    if not lives:
        nothing = F.lit(None).cast("bigint")
        return messages.withColumns(dict.fromkeys(("worked_before", "worked_during", "worked_after"), nothing))
    # Each message is compared with all times, and the minutes of a week are many: of an hour in which no life begins or
    # ends, the first and the last time say as much.
    divided = {(each["task"], each[end]) for each in lives for end in ("first", "last")}
    finished: dict[str, set[int]] = {each["task"]: set() for each in lives}
    for row in coverage:
        if row["task"] in finished:
            times = row["finished"]
            is_divided = (row["task"], row["landed"]) in divided
            finished[row["task"]].update(times if is_divided else (*times[:1], *times[-1:]))
    rows = [(task, sorted(times)) for task, times in finished.items()]
    worked = frame_of(messages.sparkSession, rows, "task string, worked array<bigint>")
    return (
        messages.join(F.broadcast(worked), "task", "left")
        .withColumns(
            {
                "worked_before": F.array_max(F.filter("worked", lambda each: each <= since)),
                "worked_during": F.array_max(
                    F.filter("worked", lambda each: (each > since) & (each <= F.col("expires")))
                ),
                "worked_after": F.array_min(F.filter("worked", lambda each: each > F.col("expires"))),
            }
        )
        .drop("worked")
    )


def _hour(time: Column) -> Column:
    """Return the hour that a time in microseconds lies in, as hour_of() names it."""
    return F.date_format(F.timestamp_micros(time), "yyyy-MM-dd'T'HH")
