"""
Selection of the records of all messages that must be judged one by one.

Selected are the messages of this window that are not settled, or in doubt of their order, or without a number; the
messages that the previous run left open; and the earlier records of both.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.compact.tap_matching import id_or_content
from busway_reconcile.journal import schema
from busway_reconcile.journal.columns import NUMBER, is_unnumbered, micros, needs_match, stream
from busway_reconcile.journal.frames import frame_of, join_null_safe, looked_up, semi_join_null_safe
from busway_reconcile.journal.hours import hour_of, micros_of
from busway_reconcile.judge.cache import cut
from busway_reconcile.judge.messages import RECORD, complete
from busway_reconcile.judge.ordering import first_position, may_be_later
from busway_reconcile.judge.tap_periods import Periods
from busway_reconcile.judge.tasks import TaskActivity, sources_as_targets
from busway_reconcile.settings import Settings


class Hours(NamedTuple):
    """The hours of a window, and the compacted hours before it."""

    window: Sequence[str]
    before: Sequence[str]
    changed: Sequence[str]
    """Hours before the window that got files after a run had counted them."""
    damaged: Sequence[str] = ()
    """Hours before the window of which records may be lost."""


_BROADCAST_LIMIT = 1_000_000  # rows of a few numbers


def few(rows: DataFrame, number: int) -> DataFrame:
    """Return *rows*, *number* of a few numbers each, to be broadcast unless they are too many."""
    return F.broadcast(rows) if number <= _BROADCAST_LIMIT else rows


class Numbers(NamedTuple):
    """Rows of `stream` and `src_seq`, their number, and the lowest and the highest `src_seq`, None without rows."""

    rows: DataFrame
    size: int
    lowest: int | None
    highest: int | None


def numbers_of(rows: DataFrame) -> Numbers:
    """Return the numbers in *rows*, which are computed already."""
    found = rows.agg(F.count("*"), F.min("src_seq"), F.max("src_seq")).collect()[0]
    return Numbers(few(rows, found[0]), *found)


def numbered_records(records: DataFrame, numbers: Numbers) -> DataFrame:
    """Return the *records* of the window that have one of *numbers*; RECORD."""
    return _with_number(records.where(~is_unnumbered()), numbers, "window")


def _with_number(records: DataFrame, numbers: Numbers, known: str) -> DataFrame:
    # Parquet need not read what is outside. Then by the number alone: comparing it is ten times faster than hashing
    # names, and few are left.
    around = records.where(F.col("src_seq").between(F.lit(numbers.lowest), F.lit(numbers.highest)))
    near = around.join(numbers.rows.select("src_seq").distinct(), "src_seq", "left_semi")
    named = near.withColumn("stream", stream()).join(numbers.rows, ["stream", "src_seq"], "left_semi")
    return _with_origin(named, known)


def unnumbered_records(records: DataFrame, is_foreign: Column) -> DataFrame:
    """Return the *records* of the window without a number; *is_foreign* as foreign_copies() returns it. RECORD."""
    return _with_origin(records.where(is_unnumbered() & (F.col("outcome") != schema.GAP) & ~is_foreign), "window")


def open_records(opened: DataFrame | None, changed: DataFrame | None) -> DataFrame | None:
    """
    Return the records of the messages that the previous run left open, or None.

    Shape:   *opened* as read_open() returns it, *changed* are the records of hours that got files after they were
             counted: they may have the outcome of these messages. RECORD out.
    """
    if opened is None:
        return None
    kept = opened.withColumn("known", F.lit("open")).select(*RECORD)
    if changed is None:
        return kept
    keys = kept.where("src_seq is not null").select(*NUMBER, "enqueued_time").distinct()
    # The outcome of another message with this number, of which the entry is here too, says nothing about an open one.
    numbered = complete(semi_join_null_safe(changed, keys, NUMBER))
    timed = semi_join_null_safe(numbered, keys, (*NUMBER, "enqueued_time"))
    found = timed.unionByName(numbered.where("enqueued_time is null"))
    new = join_null_safe(found, kept, ("landed", *schema.IDENTITY), "left_anti")
    return kept.unionByName(_with_origin(new, "open"))


def earlier_hours(
    earlier: Iterable[str], enqueued: Iterable[int | None], start: datetime, settings: Settings
) -> list[str]:
    """
    Return the *earlier* hours that may have records of messages of a window that starts at *start*.

    Units:   *enqueued* are times at which first ones were enqueued, in microseconds since 1970, or None.
    """
    # A record that was written apart from its message's entry is at most one hour away from it.
    since = start - timedelta(hours=1)
    for each in enqueued:
        if each is not None:
            since = min(since, datetime.fromtimestamp(each / 1_000_000, UTC) - settings.clock_tolerance)
    return [hour for hour in earlier if hour >= hour_of(max(since, start - settings.open_for))]


def settled_since(
    hours: Hours,
    coverage_before: Iterable[Mapping[str, Any]],
    last_opened: int | None,
    start: datetime,
    settings: Settings,
) -> int:
    """
    Return the time from which on no message of a window that starts at *start* has records before the window.

    An instance whose clock is behind by up to the tolerance may have written records of a message in an hour that was
    over when the source enqueued it. So it is the time after the last message of which there are earlier records, but
    the end of the tolerance if some of these may be lost.
    Units:   microseconds since 1970.
    Shape:   *coverage_before* are the rows of COVERAGE of the hours before the window, *last_opened* is when the last
             of the open messages of the previous run was enqueued.
    """
    latest = start + settings.clock_tolerance
    near = {hour for hour in hours.before if hour >= hour_of(start - settings.clock_tolerance)}
    if near & {*hours.damaged}:
        return micros_of(latest)
    known: list[int | None] = [last_opened, *(row["last_enqueued"] for row in coverage_before if row["landed"] in near)]
    return min(max([micros_of(start), *(last + 1 for last in known if last is not None)]), micros_of(latest))


def last_enqueued(records: DataFrame | None) -> int | None:
    """Return when the last message of *records* was enqueued, in microseconds since 1970; None without any."""
    last: int | None = None if records is None else records.agg(F.max(micros("enqueued_time"))).collect()[0][0]
    return last


def earlier_records(
    found: DataFrame, records: DataFrame | None, start: datetime, settings: Settings
) -> DataFrame | None:
    """
    Return the earlier *records* of the messages in *found* that an earlier run may have decided, or None.

    Such a message may have been copied twice. Shape: RECORD in *found* and out.
    """
    if records is None:
        return None
    before = micros_of(start + settings.clock_tolerance)
    numbered = found.where("src_seq is not null").withColumn("stream", stream())
    is_new, attempt = F.col("known") == "window", F.xxhash64("instance", "batch_id")
    entries = F.collect_set(F.when(F.col("outcome") == "received", attempt))
    outcomes = F.collect_set(F.when(is_new & F.col("enqueued_time").isNull(), attempt))
    by_number = numbered.groupBy("stream", "src_seq").agg(
        F.min(F.when(is_new, micros("enqueued_time"))).alias("first"),
        F.max(F.col("known") == "open").alias("is_carried"),
        (F.size(F.array_except(outcomes, entries)) > 0).alias("lacks_entry"),
    )
    # A message that was enqueued later has no earlier records. An open one has all of them, but its number may be that
    # of a later message too.
    is_decided = ~F.col("is_carried") & (F.col("first").isNull() | (F.col("first") < before))
    returning = by_number.where(F.col("lacks_entry") | is_decided)
    wanted = numbers_of(cut(returning.select("stream", "src_seq")))
    return _with_number(records, wanted, "earlier") if wanted.size else None


def earlier_entries(found: DataFrame, records: DataFrame) -> DataFrame:
    """
    Return the entries among *records* with the id or content of an unmatched record of a tap at a source in *found*.

    They show which messages the tap may have seen before, and which of them it already had. Shape: RECORD.
    """
    place = ("task", "src_site", "src_entity", "name")
    unmatched = found.where(needs_match() & (F.col("role") == "source"))
    wanted = unmatched.withColumn("name", id_or_content()).select(*place).distinct()
    entries = records.where("role = 'source'").withColumn("name", id_or_content())
    named = entries.join(F.broadcast(wanted), list(place), "left_semi")
    view = ("landed", "task", "tap", "tgt_part", "tgt_seq")
    open_there = found.where("observer = 'tap' and role = 'source' and known = 'open'").select(*view)
    return _with_origin(join_null_safe(named, open_there, view, "left_anti"), "entry")


def records_of_sessions(records: DataFrame, judged: DataFrame, number: int) -> DataFrame | None:
    """
    Return the numbered *records* of messages that may be later ones of a session of the *judged* records; RECORD.

    Units:   *number* is the number of *judged* records, about. Returns None if no judged record is of a session.
    """
    named = judged.where("known = 'window' and order_key is not null and src_seq is not null")
    position = first_position("src_seq", micros("enqueued_time"))
    least, since = named.agg(*position).collect()[0]
    if least is None:
        return None
    enqueued = F.col("enqueued_time")
    # The same for all sessions, as Parquet can compare it: it need not read what is earlier than all of them.
    later = (F.col("src_seq") > least) | enqueued.isNull() | (enqueued > F.timestamp_micros(F.lit(since)))
    near = records.where(F.col("order_key").isNotNull() & later & ~is_unnumbered())
    # An outcome names only a key that an editor changed: the other records of the message are found by its number.
    of_keys = near.join(few(named.groupBy("order_key").agg(*position), number), "order_key")
    later_ones = of_keys.where(may_be_later("src_seq", micros("enqueued_time")))
    numbers = numbers_of(cut(later_ones.select(stream().alias("stream"), "src_seq").distinct()))
    return numbered_records(records, numbers) if numbers.size else None


def without_other_tasks(
    found: DataFrame, records: DataFrame | None, shared: Sequence[tuple[str, str, str]]
) -> DataFrame:
    """
    Return *found* without tap records of copies that another task sent.

    Where several tasks of one site send to one target, a copy belongs to the task that received it, by *records*.
    Shape:   *shared* as shared_targets() returns it; RECORD and `nth` in and out.
    """
    if records is None or not shared:
        return found
    received = F.col("outcome") == "received"
    names = ("task", "src_site", "src_seq", "enqueued_time")
    others = records.where(received).select(*names).withColumnRenamed("task", "other").distinct()
    feeds = frame_of(records.sparkSession, shared, "task string, target string, other string")
    own = found.where(received).select(*names)
    foreign = others.join(F.broadcast(feeds), "other").join(own, list(names), "left_anti")
    keys = (*names, "target")
    renamed = foreign.select(*(F.col(name).alias(f"other_{name}") for name in keys))
    same = (F.col("observer") == "tap") & (F.col("role") == "target")
    for name in keys:
        same = same & (F.col(name) == F.col(f"other_{name}"))
    return found.join(renamed, same, "left_anti").select(*found.columns)


def foreign_copies(tasks: Iterable[TaskActivity], known: Iterable[TaskActivity]) -> Column:
    """
    Return whether a tap record is of a copy that applications or other tasks sent to the target.

    Shape:   *tasks* are those of the window, *known* those of earlier runs too.
    """
    stranger = (F.col("observer") == "tap") & (F.col("role") == "target") & F.col("src_seq").isNull()
    applications = F.lower("target").isin(sorted(sources_as_targets(known))) & F.col("hops").isNull()
    feeds = defaultdict[str, set[tuple[str, str]]](set)
    for one in tasks:
        for target in one.targets:
            feeds[target] |= {(one.task, site) for site, _ in one.sources}
    shape = "array<struct<task string, site string>>"
    feeding = looked_up(
        "target",
        {target: [{"task": task, "site": site} for task, site in sorted(by)] for target, by in feeds.items()},
        shape,
    )
    other = F.exists(feeding, lambda feed: (feed["task"] != F.col("task")) & (feed["site"] == F.element_at("hops", -1)))
    return F.coalesce(stranger & (applications | other), F.lit(False))


def mark_watched(records: DataFrame, tasks: Mapping[str, TaskActivity], periods: Periods) -> DataFrame:
    """Return *records* with `watched`: whether a draining tap must see the copy that a record is about."""
    tapped = {task: sorted(one.target_taps) for task, one in tasks.items()}
    is_tapped = F.array_contains(looked_up("task", tapped, "array<string>"), F.col("target"))
    # An open message waits for its tap, even if the tap has no record in this window. A tap that was removed on purpose
    # decides only messages that were sent before.
    waiting = {
        task: [
            {"target": target, "until": micros_of(period.until) if period.is_removed and period.until else None}
            for target, period in sorted(by_target.items())
        ]
        for task, by_target in periods.items()
    }
    waits = F.exists(
        looked_up("task", waiting, "array<struct<target string, until bigint>>"),
        lambda tap: (
            (tap["target"] == F.col("target"))
            & (tap["until"].isNull() | (micros("journal_time") <= tap["until"]) | (F.col("observer") == "tap"))
        ),
    )
    is_watched = F.coalesce(is_tapped, F.lit(False)) | ((F.col("known") == "open") & waits)
    return records.withColumn("watched", F.coalesce(is_watched & F.col("joined").isNull(), F.lit(False)))


def _with_origin(records: DataFrame, known: str) -> DataFrame:
    return records.withColumns(
        {
            "known": F.lit(known),
            "known_since": F.lit(None).cast("string"),
            "doubted": F.lit(False),
            "found": F.lit(False),
            "refuted": F.lit(False),
        }
    ).select(*RECORD)
