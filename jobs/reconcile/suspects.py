"""Which messages a night has to look at one by one: those of buckets whose two sides are not the same."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import schema
from jobs.reconcile.index import BUCKET, CLOCKS_DIFFER, SESSION, block, micros
from jobs.reconcile.inputs import Problem, hour_of, start_of
from jobs.reconcile.joins import semi_join_null_safe
from jobs.reconcile.settings import LONGEST_HOLD, Settings

HELD_HOURS = LONGEST_HOLD // timedelta(hours=1)

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


def told_in_other_hours(digests: DataFrame, doubts: Iterable[Problem]) -> set[tuple[str, str, str]]:
    """
    Return task, role and hour of those *doubts*, that an hour lacks a side, whose messages have it in an hour nearby.

    A batch that waits for its target has its two records that far apart. Shape: *digests* are of those hours too.
    """
    near = [
        (
            each.task,
            each.role,
            hour,
            hour_of(start_of(hour) + timedelta(hours=away if each.role == "target" else -away)),
        )
        for each in doubts
        for hour in each.hours
        for away in range(HELD_HOURS + 1)
    ]
    hours = digests.sparkSession.createDataFrame(near, "task string, role string, hour string, landed string")
    lacks_outcomes = F.col("role") == "target"
    received, outcome = F.col("side") == "received", F.col("side").isin("sent", "retry", *schema.WITHHELD)
    is_there = (F.col("landed") == F.col("hour")) & F.when(lacks_outcomes, received).otherwise(outcome)
    is_other = F.when(lacks_outcomes, outcome).otherwise(received)
    bits = (F.bit_or(F.when(condition, F.col("bits"))) for condition in (is_there, is_other))
    there, other = (F.coalesce(each, F.lit(0).cast("bigint")) for each in bits)
    buckets = digests.join(F.broadcast(hours), ["task", "landed"]).groupBy("role", "hour", *BUCKET)
    told = (
        buckets.agg(there.alias("there"), there.bitwiseAND(F.bitwise_not(other)).alias("lacking"))
        .groupBy("task", "role", "hour")
        .agg(F.max(F.col("there") != 0).alias("has_any"), F.max(F.col("lacking") != 0).alias("lacks_any"))
        .where("has_any and not lacks_any")
    )
    return {(row["task"], row["role"], row["hour"]) for row in told.collect()}


def taken_again(digests: DataFrame, names: Mapping[str, str]) -> set[str]:
    """
    Return those of *names*, as old to new, whose new one takes for the greater part what the old one had ended.

    It does not follow on the old one then, but reads the same hub for itself, from its beginning.
    """
    of_task = [(old, task, task == new) for old, new in names.items() for task in (old, new)]
    marked = digests.join(
        F.broadcast(digests.sparkSession.createDataFrame(of_task, "old string, task string, is_new boolean")), "task"
    )
    ended, taken = (
        F.coalesce(F.bit_or(F.when(condition, F.col("bits"))), F.lit(0).cast("bigint"))
        for condition in (
            ~F.col("is_new") & F.col("side").isin("sent", *schema.WITHHELD),
            F.col("is_new") & (F.col("side") == "received"),
        )
    )
    counts = (
        marked.groupBy("old", *BUCKET[1:])
        .agg(F.bit_count(taken).alias("taken"), F.bit_count(taken.bitwiseAND(ended)).alias("again"))
        .groupBy("old")
        .agg(F.sum("taken").alias("taken"), F.sum("again").alias("again"))
    )
    return {row["old"] for row in counts.where("2 * again > taken").collect()}


def across_hours(sessions: DataFrame) -> DataFrame:
    """
    Return the order keys and hours in which something arrived after a later message of an hour before.

    Shape:   *sessions* of all hours that matter in; out one row per hour and key, `highest_earlier` being the highest
             number that had arrived before the hour began.
    """
    # One number is compared faster than nine names, and two sessions will hardly share it.
    by_hour = Window.partitionBy("session").orderBy("hour").rangeBetween(Window.unboundedPreceding, -1)
    return (
        sessions.withColumn("session", F.xxhash64(*SESSION))
        .withColumn("hour", F.unix_timestamp("landed", "yyyy-MM-dd'T'HH"))
        .withColumns({"highest_earlier": F.max("highest").over(by_hour), "latest": F.max("latest").over(by_hour)})
        .where("lowest < highest_earlier and coalesce(earliest <= latest, true)")
        .groupBy("landed", *SESSION)
        .agg(F.max("highest_earlier").alias("highest_earlier"))
    )


def behind_earlier(arrivals: DataFrame, sessions: DataFrame) -> DataFrame:
    """Return those of *arrivals* that came after a later message of an hour before, as far as clocks can tell."""
    theirs = sessions.select(
        F.xxhash64(*SESSION).alias("session"),
        F.col("landed").alias("before"),
        F.col("clock").alias("their_clock"),
        *("highest", "latest", "last"),
    )
    hashed = arrivals.withColumn("session", F.xxhash64(*SESSION))
    of_those = theirs.join(F.broadcast(hashed.select("session").distinct()), "session", "left_semi")
    is_earlier = F.col("their_clock").eqNullSafe(F.col("clock")) | (F.col("last") + CLOCKS_DIFFER < F.col("major"))
    is_later_message = (F.col("highest") > F.col("src_seq")) & F.coalesce(
        F.col("latest") >= micros("enqueued_time"), F.lit(True)
    )
    same = hashed["session"] == of_those["session"]
    proof = same & (F.col("before") < F.col("landed")) & is_later_message & is_earlier
    return hashed.join(of_those, proof, "left_semi").drop("session")


def rows_of(records: DataFrame, buckets: DataFrame, *, broadcast: bool) -> DataFrame:
    """Return those of *records* that lie in *buckets*."""
    numbered = records.withColumn("block", block())
    if not broadcast:
        return semi_join_null_safe(numbered, buckets, BUCKET).drop("block")
    # By the number alone first: it is compared ten times faster than the names of task and entity, and leaves few.
    near = numbered.join(F.broadcast(buckets.select("block").distinct()), "block", "left_semi")
    return semi_join_null_safe(near, F.broadcast(buckets), BUCKET).drop("block")
