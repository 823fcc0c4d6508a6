"""
Selection of the records of all messages that must be judged one by one.

Selected are the messages of this window in buckets that differ, or out of order, or not in any bucket; the messages
that the previous run left open; and the earlier records of both.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.compact import index
from jobs.reconcile.journal import schema
from jobs.reconcile.journal.columns import BUCKET, NUMBER, block, is_unnumbered, micros
from jobs.reconcile.journal.hours import hour_of, micros_of
from jobs.reconcile.journal.null_safe_joins import join_null_safe, semi_join_null_safe
from jobs.reconcile.judge.buckets import COUNTED, compare_buckets, records_in
from jobs.reconcile.judge.cache import Cache
from jobs.reconcile.judge.tap_periods import Periods, each_period
from jobs.reconcile.judge.tasks import TaskActivity, sources_as_targets, tapped_sides
from jobs.reconcile.settings import Settings

RECORD = (*schema.COMPACTED, "known", "known_since", "doubted")
"""A selected record: `known` says where it is from (window, open, earlier), `known_since` which run left it open."""

_BROADCAST_LIMIT = 1_000_000  # rows of a few numbers


class Tables(NamedTuple):
    """The compacted tables of a window that are selected from, None where they have no rows."""

    buckets: DataFrame | None
    records: DataFrame | None
    loose: DataFrame | None
    out_of_order: DataFrame | None


class Selected(NamedTuple):
    """The selected records of a window, and the buckets and messages that are clean."""

    records: list[DataFrame]
    clean_buckets: DataFrame | None
    clean_messages: DataFrame | None


def select_window(
    tables: Tables, tapped: DataFrame, is_foreign: Column, *, start: datetime, settings: Settings, cache: Cache
) -> Selected:
    """
    Return the records of a window that starts at *start* whose messages must be judged.

    Shape:   *tapped* as compare_buckets() takes it, *is_foreign* as foreign_copies() returns it; RECORD out.
    """
    buckets, records, loose, out_of_order = tables
    parts: list[DataFrame] = []
    clean_buckets = None if buckets is None else buckets.where("clean")
    clean_messages = None
    if records is not None and buckets is not None and clean_buckets is not None:
        suspicious = cache.keep(_suspicious_buckets(buckets, loose, out_of_order))
        clean_buckets = join_null_safe(clean_buckets, suspicious, BUCKET, "left_anti")
        count = suspicious.count()
        if count:
            near = cache.keep(records_in(records, suspicious, broadcast=count <= _BROADCAST_LIMIT))
            # A bucket for each message: most messages of a bucket that differs are clean themselves.
            singles = cache.keep(
                compare_buckets(index.digests(near, 1), tapped, start, settings).withColumnRenamed("block", "src_seq")
            )
            wanted = cache.keep(_suspicious_messages(singles, loose, out_of_order))
            few = F.broadcast(wanted) if wanted.count() <= _BROADCAST_LIMIT else wanted
            clean_messages = join_null_safe(singles.where("clean"), few, NUMBER, "left_anti")
            parts.append(_with_origin(semi_join_null_safe(near, few, NUMBER), "window"))
    if loose is not None:
        parts.append(_with_origin(loose.where(is_unnumbered()).where(~is_foreign), "window"))
    return Selected(parts, clean_buckets, clean_messages)


def _suspicious_buckets(buckets: DataFrame, loose: DataFrame | None, out_of_order: DataFrame | None) -> DataFrame:
    found = buckets.where("not clean").select(*BUCKET)
    if out_of_order is not None:
        found = found.unionByName(out_of_order.select(*NUMBER[:4], block().alias("block")))
    if loose is not None:
        near = loose.where("src_seq is not null and src_part is null").select(*NUMBER[:3], block().alias("block"))
        found = found.unionByName(buckets.select(*BUCKET).join(near, near.columns, "left_semi"))
    return found.distinct()


def _suspicious_messages(singles: DataFrame, loose: DataFrame | None, out_of_order: DataFrame | None) -> DataFrame:
    found = singles.where("not clean").select(*NUMBER)
    if out_of_order is not None:
        found = found.unionByName(out_of_order.select(*NUMBER))
    if loose is not None:
        place = ["task", "src_site", "src_entity", "src_seq"]
        without_part = loose.where("src_seq is not null and src_part is null").select(*place)
        found = found.unionByName(singles.select(*NUMBER).join(without_part, place, "left_semi"))
    return found.distinct()


def clean_counts(selected: Selected) -> list[dict[str, Any]]:
    """Return per task the sums of the clean buckets and messages, with the number of these buckets."""
    sums = [F.sum(name).alias(name) for name in COUNTED]
    counted = []
    if selected.clean_buckets is not None:
        counted.append(selected.clean_buckets.groupBy("task").agg(F.count("*").alias("buckets"), *sums))
    if selected.clean_messages is not None:
        counted.append(selected.clean_messages.groupBy("task").agg(F.lit(0).alias("buckets"), *sums))
    return [row.asDict() for frame in counted for row in frame.collect()]


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
    timed = semi_join_null_safe(changed, keys, (*NUMBER, "enqueued_time"))
    untimed = semi_join_null_safe(changed.where("enqueued_time is null"), keys, NUMBER)
    new = join_null_safe(timed.unionByName(untimed), kept, ("landed", *schema.IDENTITY), "left_anti")
    return kept.unionByName(_with_origin(new, "open"))


def earlier_hours(earlier: Iterable[str], first_enqueued: int | None, start: datetime, settings: Settings) -> list[str]:
    """Return the *earlier* hours that may have records of messages of a window that starts at *start*."""
    # A record that was written apart from its message's entry is at most one hour away from it.
    since = start - timedelta(hours=1)
    if first_enqueued is not None:
        since = min(since, datetime.fromtimestamp(first_enqueued / 1_000_000, UTC) - settings.clock_tolerance)
    return [hour for hour in earlier if hour >= hour_of(max(since, start - settings.open_for))]


def earlier_records(
    found: DataFrame, records: DataFrame | None, start: datetime, settings: Settings, cache: Cache
) -> DataFrame | None:
    """
    Return the earlier *records* of the messages in *found* that an earlier run may have decided, or None.

    Such a message may have been copied twice. Shape: RECORD in *found* and out.
    """
    if records is None:
        return None
    before = micros_of(start + settings.clock_tolerance)
    numbered = found.where("src_seq is not null")
    # A message that was enqueued later has no earlier records.
    old = F.col("enqueued_time").isNull() | (micros("enqueued_time") < before)
    returning = numbered.where((F.col("known") == "window") & old).select(*NUMBER).distinct()
    carried = numbered.where("known = 'open'").select(*NUMBER).distinct()
    wanted = cache.keep(returning.exceptAll(carried))
    count = wanted.count()
    if not count:
        return None
    few = F.broadcast(wanted) if count <= _BROADCAST_LIMIT else wanted
    return _with_origin(semi_join_null_safe(records, few, NUMBER), "earlier")


def without_other_tasks(
    found: DataFrame, records: DataFrame | None, shared: Sequence[tuple[str, str, str]]
) -> DataFrame:
    """
    Return *found* without tap records of copies that another task sent.

    Where several tasks of one site send to one target, a copy belongs to the task that received it, by *records*.
    Shape:   *shared* as shared_targets() returns it; RECORD in and out.
    """
    if records is None or not shared:
        return found
    received = F.col("outcome") == "received"
    names = ("task", "src_site", "src_seq", "enqueued_time")
    others = records.where(received).select(*names).withColumnRenamed("task", "other").distinct()
    feeds = records.sparkSession.createDataFrame(list(shared), "task string, target string, other string")
    own = found.where(received).select(*names)
    foreign = others.join(F.broadcast(feeds), "other").join(own, list(names), "left_anti")
    keys = (*names, "target")
    renamed = foreign.select(*(F.col(name).alias(f"other_{name}") for name in keys))
    same = (F.col("observer") == "tap") & (F.col("role") == "target")
    for name in keys:
        same = same & (F.col(name) == F.col(f"other_{name}"))
    return found.join(renamed, same, "left_anti").select(*RECORD)


def foreign_copies(tasks: Iterable[TaskActivity], known: Iterable[TaskActivity]) -> Column:
    """
    Return whether a tap record is of a copy that applications or other tasks sent to the target.

    Shape:   *tasks* are those of the window, *known* those of earlier runs too.
    """
    stranger = (F.col("observer") == "tap") & (F.col("role") == "target") & F.col("src_seq").isNull()
    applications = F.lower("target").isin(sorted(sources_as_targets(known))) & F.col("hops").isNull()
    other = F.lit(False)
    for one in tasks:
        sites = sorted({site for site, _ in one.sources})
        for target in sorted(one.targets):
            from_there = (F.col("target") == target) & F.element_at("hops", -1).isin(sites)
            other = other | ((F.col("task") != one.task) & from_there)
    return F.coalesce(stranger & (applications | other), F.lit(False))


def mark_watched(records: DataFrame, tasks: Mapping[str, TaskActivity], periods: Periods) -> DataFrame:
    """Return *records* with `watched`: whether a draining tap must see the copy that a record is about."""
    is_watched = F.lit(False)
    for task, role, target in tapped_sides(tasks):
        if role == "target":
            is_watched = is_watched | ((F.col("task") == task) & (F.col("target") == target))
    # An open message waits for its tap, even if the tap has no record in this window.
    for task, target, _ in each_period(periods):
        waiting = (F.col("known") == "open") & (F.col("task") == task) & (F.col("target") == target)
        is_watched = is_watched | waiting
    return records.withColumn("watched", F.coalesce(is_watched & F.col("joined").isNull(), F.lit(False)))


def _with_origin(records: DataFrame, known: str) -> DataFrame:
    return records.withColumns(
        {"known": F.lit(known), "known_since": F.lit(None).cast("string"), "doubted": F.lit(False)}
    ).select(*RECORD)
