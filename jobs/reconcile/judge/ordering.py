"""Order: the arrivals that came after a later message of their session or partition key."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.compact.index import CLOCKS_DIFFER, ordered_arrivals
from jobs.reconcile.journal.columns import SESSION, arrival_order, is_arrival, micros
from jobs.reconcile.journal.null_safe_joins import join_null_safe
from jobs.reconcile.judge.cache import Cache

ARRIVAL = ("landed", *SESSION, "src_seq", "enqueued_time", "major", "minor", "clock")
"""The columns of an arrival out of order."""

_VIEW = ("task", "observer", "target", "tgt_part", "src_part", "src_seq", "major", "minor")


def out_of_order(
    within: DataFrame | None,
    sessions: DataFrame | None,
    records: DataFrame | None,
    hours: Sequence[str],
    *,
    shared: Sequence[tuple[str, str, str]],
    cache: Cache,
) -> DataFrame | None:
    """
    Return the arrivals of *hours* that came after a later message of their order key, or None.

    Shape:   *within* has those that one hour shows (the table behind), *sessions* are those of earlier hours too,
             *shared* are the targets of several tasks, where a tap cannot tell their order; ARRIVAL out.
    """
    found = within
    if sessions is not None and records is not None:
        across = cache.keep(_across_hours(sessions).where(F.col("landed").isin(list(hours))))
        if not across.isEmpty():
            # By the key alone first, which leaves few.
            keys = F.broadcast(across.select("order_key").distinct())
            near = ordered_arrivals(records).join(keys, "order_key", "left_semi")
            late = _after_earlier_hours(
                join_null_safe(near, F.broadcast(across), ("landed", *SESSION))
                .where("src_seq < highest_earlier")
                .drop("highest_earlier"),
                sessions,
            )
            both = late if within is None else within.select(*late.columns).unionByName(late)
            found = cache.keep(both.distinct())
    if found is None:
        return None
    mixed = F.lit(False)
    for task, target, _ in shared:
        mixed = mixed | ((F.col("task") == task) & (F.col("target") == target))
    return found.where((F.col("observer") == "task") | ~mixed).select(*ARRIVAL)


def mark_out_of_order(records: DataFrame, arrivals: DataFrame | None) -> DataFrame:
    """Return *records* with `is_behind`: whether a record is one of the *arrivals* out of order."""
    if arrivals is None:
        return records.withColumn("is_behind", F.lit(False))
    major, minor = arrival_order()
    marks = arrivals.select(*_VIEW).distinct().withColumn("is_behind", F.lit(True))
    ordered = records.withColumns({"major": major, "minor": minor})
    joined = join_null_safe(ordered, F.broadcast(marks), _VIEW, "left").drop("major", "minor")
    return joined.withColumn("is_behind", F.coalesce("is_behind", F.lit(False)) & is_arrival())


def _across_hours(sessions: DataFrame) -> DataFrame:
    """
    Return the order keys and hours with an arrival after a later message of an earlier hour.

    Shape:   `landed`, SESSION, and in `highest_earlier` the highest number that had arrived before the hour began.
    """
    # One hash is compared faster than nine names; two sessions hardly ever have the same.
    by_hour = Window.partitionBy("session").orderBy("hour").rangeBetween(Window.unboundedPreceding, -1)
    return (
        sessions.withColumn("session", F.xxhash64(*SESSION))
        .withColumn("hour", F.unix_timestamp("landed", "yyyy-MM-dd'T'HH"))
        .withColumns({"highest_earlier": F.max("highest").over(by_hour), "latest": F.max("latest").over(by_hour)})
        .where("lowest < highest_earlier and coalesce(earliest <= latest, true)")
        .groupBy("landed", *SESSION)
        .agg(F.max("highest_earlier").alias("highest_earlier"))
    )


def _after_earlier_hours(arrivals: DataFrame, sessions: DataFrame) -> DataFrame:
    """Return the *arrivals* that came after a later message of an earlier hour, as far as clocks show it."""
    others = sessions.select(
        F.xxhash64(*SESSION).alias("session"),
        F.col("landed").alias("before"),
        F.col("clock").alias("other_clock"),
        *("highest", "latest", "last"),
    )
    hashed = arrivals.withColumn("session", F.xxhash64(*SESSION))
    of_those = others.join(F.broadcast(hashed.select("session").distinct()), "session", "left_semi")
    is_earlier = F.col("other_clock").eqNullSafe(F.col("clock")) | (F.col("last") + CLOCKS_DIFFER < F.col("major"))
    is_later_message = (F.col("highest") > F.col("src_seq")) & F.coalesce(
        F.col("latest") >= micros("enqueued_time"), F.lit(True)
    )
    same = hashed["session"] == of_those["session"]
    proof = same & (F.col("before") < F.col("landed")) & is_later_message & is_earlier
    return hashed.join(of_those, proof, "left_semi").drop("session")
