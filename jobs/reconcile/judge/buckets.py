"""
Comparison of the two sides of each bucket: only messages in buckets that differ are judged one by one.

A bucket is a block of sequence numbers of one source partition.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal import schema
from jobs.reconcile.journal.columns import BUCKET, block
from jobs.reconcile.journal.hours import micros_of
from jobs.reconcile.journal.null_safe_joins import semi_join_null_safe
from jobs.reconcile.journal.problems import Problem
from jobs.reconcile.settings import Settings

COUNTED = ("received", "sent", *schema.WITHHELD)

COMPARED = (*BUCKET, *COUNTED, "first_enqueued", "least_lag", "clean")
"""The columns of a compared bucket."""


def compare_buckets(digests: DataFrame, tapped: DataFrame, start: datetime, settings: Settings) -> DataFrame:
    """
    Return one row for each bucket of a window: its counts, its lags, and whether it is `clean`.

    In a clean bucket, every message entered once and in this window, and was accepted once, unaltered and in time, or
    was withheld; where there are taps, they saw the same.
    Shape:   *tapped* has a row for each task, role and target (null for role source) with a draining tap; COMPARED out.
    """
    at_target = F.broadcast(tapped.where("role = 'target'").select("task", "target", F.lit(True).alias("watched")))
    at_source = F.broadcast(
        tapped.where("role = 'source'").select("task").distinct().withColumn("watched_source", F.lit(True))
    )
    watched = (
        digests.join(at_target, ["task", "target"], "left")
        .join(at_source, ["task"], "left")
        .fillna(value=False, subset=["watched", "watched_source"])
    )
    sent = F.col("side").isin("sent", "joined")
    out = sent | F.col("side").isin(*schema.WITHHELD)
    watched_out = (F.col("side") == "sent") & F.col("watched")
    tap = F.col("side") == "tap-target"
    # The tap, if there is one, shows when a message arrived.
    shows = F.when(F.col("watched"), tap).otherwise(sent)
    sums = watched.groupBy(*BUCKET).agg(
        *(_sum(sent if name == "sent" else F.col("side") == name, "n").alias(name) for name in COUNTED),
        *(_sum(F.col("side") == "received", name).alias(f"in_{name}") for name in ("keys", "entered")),
        *(_sum(out, name).alias(f"out_{name}") for name in ("keys", "entered")),
        *(_sum(watched_out, name).alias(f"due_{name}") for name in ("n", "keys", "contents")),
        *(_sum(tap & F.col("watched"), name).alias(f"seen_{name}") for name in ("n", "keys", "contents")),
        *(_sum(F.col("side") == "tap-source", name).alias(f"entry_{name}") for name in ("n", "keys", "entered")),
        _sum(tap & ~F.col("watched"), "n").alias("peeked"),
        F.bit_or(F.when(F.col("side") == "received", F.col("bits"))).alias("bits"),
        F.max("watched_source").alias("watched_source"),
        F.sum("unusual").alias("unusual"),
        F.min("first_enqueued").alias("first_enqueued"),
        F.min(F.when(shows, F.col("least_lag"))).alias("least_lag"),
        F.max(F.when(shows, F.col("most_lag"))).alias("most_lag"),
    )
    withheld = sum((F.col(name) for name in schema.WITHHELD), F.lit(0))
    clean = (
        (F.col("received") == F.col("sent") + withheld)
        # Each once: a message that was received twice and sent twice would balance too.
        & (F.col("received") == F.bit_count("bits"))
        & (F.col("in_keys") == F.col("out_keys"))
        & (F.col("in_entered") == F.col("out_entered"))
        & (F.col("due_n") == F.col("seen_n"))
        & (F.col("due_keys") == F.col("seen_keys"))
        & (F.col("due_contents") == F.col("seen_contents"))
        & (F.col("peeked") == 0)
        & (F.col("unusual") == 0)
        & (F.col("first_enqueued") >= micros_of(start + settings.clock_tolerance))
        & (F.coalesce(F.col("most_lag"), F.lit(0)) <= settings.late_after.total_seconds() * 1_000_000)
        & (
            ~F.col("watched_source")
            | (
                (F.col("entry_n") == F.col("received"))
                & (F.col("entry_keys") == F.col("in_keys"))
                & (F.col("entry_entered") == F.col("in_entered"))
            )
        )
    )
    return sums.withColumn("clean", F.coalesce(clean, F.lit(False))).select(*COMPARED)


def _sum(condition: Column, name: str) -> Column:
    return F.coalesce(F.sum(F.when(condition, F.col(name))), F.lit(0))


def records_in(records: DataFrame, buckets: DataFrame, *, broadcast: bool) -> DataFrame:
    """Return the *records* that are in *buckets*."""
    numbered = records.withColumn("block", block())
    if not broadcast:
        return semi_join_null_safe(numbered, buckets, BUCKET).drop("block")
    # By the block alone first: comparing it is ten times faster than the names of task and entity, and few are left.
    near = numbered.join(F.broadcast(buckets.select("block").distinct()), "block", "left_semi")
    return semi_join_null_safe(near, F.broadcast(buckets), BUCKET).drop("block")


class Extremes(NamedTuple):
    """The smallest lag of each task, and the first enqueued time of all, in microseconds."""

    least_lags: dict[str, int]
    first_enqueued: int | None


def extremes(buckets: DataFrame) -> Extremes:
    """Return the extremes of compared *buckets*."""
    rows = (
        buckets.groupBy("task").agg(F.min("least_lag").alias("lag"), F.min("first_enqueued").alias("first")).collect()
    )
    firsts = [row["first"] for row in rows if row["first"] is not None]
    return Extremes({row["task"]: row["lag"] for row in rows if row["lag"] is not None}, min(firsts, default=None))


def clock_problems(least_lags: Mapping[str, int], settings: Settings) -> list[Problem]:
    """Return a problem for each task whose messages arrived before they were enqueued; lags are in microseconds."""
    tolerance = settings.clock_tolerance.total_seconds() * 1_000_000
    return [
        Problem(
            "clocks-disagree",
            task,
            f"messages arrived up to {-lag / 1_000_000:,.1f} s before they were enqueued: the lags are unreliable",
            task,
        )
        for task, lag in sorted(least_lags.items())
        if lag < -tolerance
    ]
