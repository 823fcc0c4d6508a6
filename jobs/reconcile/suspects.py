"""Which messages a night has to look at one by one: those of buckets whose two sides are not the same."""

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import schema
from jobs.reconcile.index import BUCKET, SESSION, block
from jobs.reconcile.joins import semi_join_null_safe
from jobs.reconcile.settings import Settings

_COUNTED = ("received", "sent", *schema.WITHHELD)


def micros_of(moment: datetime) -> int:
    """Return *moment* in microseconds since 1970."""
    return round(moment.timestamp() * 1_000_000)


def compared(digests: DataFrame, tapped: DataFrame, start: datetime, settings: Settings) -> DataFrame:
    """
    Return one row for each bucket of a window: its counts, its lags, and whether it is `clean`.

    A clean bucket holds messages that entered in this window, each once, and each of them was accepted once as it was
    meant to be, or withheld, in time; and where there are taps, they saw the same.
    Shape:   *tapped* has a row for each task, role and target (null for role source) that a draining tap watches.
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
    # What shows when a message arrived: the tap where there is one.
    shows = F.when(F.col("watched"), tap).otherwise(sent)
    sums = watched.groupBy(*BUCKET).agg(
        *(_sum(sent if name == "sent" else F.col("side") == name, "n").alias(name) for name in _COUNTED),
        *(_sum(F.col("side") == "received", name).alias(f"in_{name}") for name in ("keys", "entered")),
        *(_sum(out, name).alias(f"out_{name}") for name in ("keys", "entered")),
        *(_sum(watched_out, name).alias(f"due_{name}") for name in ("n", "keys", "contents")),
        *(_sum(tap & F.col("watched"), name).alias(f"seen_{name}") for name in ("n", "keys", "contents")),
        *(_sum(F.col("side") == "tap-source", name).alias(f"entry_{name}") for name in ("n", "keys", "entered")),
        _sum(tap & ~F.col("watched"), "n").alias("glimpsed"),
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
        # Each once: a message that was received and sent twice balances too.
        & (F.col("received") == F.bit_count("bits"))
        & (F.col("in_keys") == F.col("out_keys"))
        & (F.col("in_entered") == F.col("out_entered"))
        & (F.col("due_n") == F.col("seen_n"))
        & (F.col("due_keys") == F.col("seen_keys"))
        & (F.col("due_contents") == F.col("seen_contents"))
        & (F.col("glimpsed") == 0)
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
    return sums.select(
        *BUCKET, *_COUNTED, "first_enqueued", "least_lag", F.coalesce(clean, F.lit(False)).alias("clean")
    )


def _sum(condition: Column, name: str) -> Column:
    return F.coalesce(F.sum(F.when(condition, F.col(name))), F.lit(0))


def across_hours(sessions: DataFrame) -> DataFrame:
    """
    Return the order keys and hours in which something arrived after a later message of an hour before.

    Shape:   *sessions* of all hours that matter in; out one row per hour and key, `highest_earlier` being the highest
             number that had arrived before the hour began.
    """
    # One number is compared faster than nine names, and two sessions will hardly share it.
    earlier = Window.partitionBy("session").orderBy("landed").rowsBetween(Window.unboundedPreceding, -1)
    return (
        sessions.withColumn("session", F.xxhash64(*SESSION))
        .withColumn("highest_earlier", F.max("highest").over(earlier))
        .where("lowest < highest_earlier")
        .select("landed", *SESSION, "highest_earlier")
    )


def rows_of(records: DataFrame, buckets: DataFrame, *, broadcast: bool) -> DataFrame:
    """Return those of *records* that lie in *buckets*."""
    numbered = records.withColumn("block", block())
    if not broadcast:
        return semi_join_null_safe(numbered, buckets, BUCKET).drop("block")
    # By the number alone first: it is compared ten times faster than the names of task and entity, and leaves few.
    near = numbered.join(F.broadcast(buckets.select("block").distinct()), "block", "left_semi")
    return semi_join_null_safe(near, F.broadcast(buckets), BUCKET).drop("block")
