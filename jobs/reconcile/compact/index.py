"""
The index of compacted records, so that a run need not read them all.

digests   per hour, task, partition, block of sequence numbers, side and target: counts and order-free sums of hashes
sessions  per hour and order key: the highest sequence number that arrived
behind    arrivals after a later message of their session or key
lags      how long messages took, in classes of 5 %
coverage  per hour, which task or tap wrote how many records, and the time of the first and the last
"""

import math

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal import schema
from jobs.reconcile.journal.columns import (
    BUCKET,
    BUCKET_SIZE,
    SESSION,
    arrival_order,
    arrival_time,
    block,
    is_arrival,
    is_loose,
    is_round_trip,
    is_unnumbered,
    micros,
    sum_of_hashes,
)
from jobs.reconcile.settings import Settings

LAG_CLASS = 1.05

CLOCKS_DIFFER = round(Settings.clock_tolerance.total_seconds() * 1_000_000)

VERSION = 4
"""Version of the index: raised with every change that makes other tables from the same records."""

TABLES = ("records", "loose", "digests", "sessions", "behind", "lags", "coverage")


def digests(records: DataFrame, size: int = BUCKET_SIZE) -> DataFrame:
    """Return the digests of compacted *records* in buckets of *size* sequence numbers."""
    tapped = F.when(F.col("observer") == "tap", F.concat(F.lit("tap-"), F.col("role")))
    remembered = F.coalesce(F.col("remembered"), F.lit(False))
    # A message joined into another one has no copy that a tap could see.
    outcome = F.when(F.col("joined"), F.lit("joined")).otherwise(F.col("outcome"))
    unusual = (
        (F.coalesce(F.col("parts"), F.lit(1)) > 1)
        | F.col("part").isNotNull()
        | remembered
        | F.coalesce(F.col("peek"), F.lit(False))
        | F.col("enqueued_time").isNull()
        # Whether a message had expired, or had been at a site, is judged by other records.
        | F.col("outcome").isin("retry", "expired", "looped")
        | F.coalesce(F.col("repair"), F.lit(False))
        | is_round_trip()
    )
    numbered = records.where(~is_unnumbered())
    lag = F.when(is_arrival(), arrival_time() - micros("enqueued_time"))
    return numbered.groupBy(
        "landed", *BUCKET[:4], block(size).alias("block"), F.coalesce(tapped, outcome).alias("side"), "target"
    ).agg(
        F.count("*").alias("n"),
        # One bit for each number of the block that is present.
        F.bit_or(F.expr(f"shiftleft(1L, cast(pmod(src_seq, {size}) as int))")).alias("bits"),
        sum_of_hashes("src_seq", "enqueued_time").alias("keys"),
        sum_of_hashes("src_seq", "entry_check").alias("entered"),
        sum_of_hashes("src_seq", "check", "message_id", "order_key").alias("contents"),
        F.sum(F.col("edited").isNotNull().cast("bigint")).alias("edited"),
        F.sum(F.coalesce(unusual, F.lit(True)).cast("bigint")).alias("unusual"),
        F.min(micros("enqueued_time")).alias("first_enqueued"),
        F.min(lag).alias("least_lag"),
        F.max(lag).alias("most_lag"),
    )


def ordered_arrivals(records: DataFrame) -> DataFrame:
    """Return the arrivals of messages with an order key; `major` and `minor` give their order."""
    major, minor = arrival_order()
    return records.where(is_arrival() & F.col("order_key").isNotNull() & F.col("src_seq").isNotNull()).select(
        "landed",
        *SESSION,
        "src_seq",
        "enqueued_time",
        major.alias("major"),
        minor.alias("minor"),
        # A tap's arrivals are in the order of the target, whichever instance wrote them.
        F.when(F.col("observer") == "task", F.xxhash64("instance")).alias("clock"),
    )


def behind(records: DataFrame) -> DataFrame:
    """
    Return the arrivals after a later message of their order key, within one hour.

    The clocks of two instances differ: their records are in order only if they are more than CLOCKS_DIFFER apart.
    """
    session = Window.partitionBy("landed", *SESSION)
    in_time = session.orderBy("major", "minor")
    before = F.max("src_seq").over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    is_in_doubt = F.max(F.col("src_seq") < F.col("highest_before")).over(
        in_time.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    doubted = ordered_arrivals(records).withColumn("highest_before", before).withColumn("is_in_doubt", is_in_doubt)
    # Only the few sessions in which a number came after a higher one are left.
    of_all = session.orderBy("major").rangeBetween(Window.unboundedPreceding, -CLOCKS_DIFFER)
    own = Window.partitionBy("landed", *SESSION, "clock").orderBy("major", "minor")
    of_own = own.rowsBetween(Window.unboundedPreceding, -1)
    # Numbers start again when an entity is deleted and created, times do not: a later message has both higher.
    position = F.struct("enqueued_time", "src_seq")
    highest = F.greatest(F.max("src_seq").over(of_all), F.max("src_seq").over(of_own))
    latest = F.greatest(F.max(position).over(of_all), F.max(position).over(of_own))
    return (
        doubted.where("is_in_doubt")
        .withColumns({"highest": highest, "latest": latest})
        .where((F.col("src_seq") < F.col("highest")) & (position < F.col("latest")))
        .drop("highest_before", "is_in_doubt", "highest", "latest")
    )


def sessions(records: DataFrame) -> DataFrame:
    """Return per hour, order key and clock what later hours need to know about it."""
    return (
        ordered_arrivals(records)
        .groupBy("landed", *SESSION, "clock")
        .agg(
            F.min("src_seq").alias("lowest"),
            F.max("src_seq").alias("highest"),
            F.min(micros("enqueued_time")).alias("earliest"),
            F.max(micros("enqueued_time")).alias("latest"),
            F.max("major").alias("last"),
        )
    )


def lags(records: DataFrame) -> DataFrame:
    """Return the number of arrivals per hour of arrival, task, observer, target and class of lag."""
    milliseconds = F.greatest((arrival_time() - micros("enqueued_time")) / 1000, F.lit(0))
    return (
        records.where(is_arrival() & F.col("enqueued_time").isNotNull())
        .groupBy(
            "landed",
            "task",
            "observer",
            "target",
            F.date_format(F.timestamp_micros(arrival_time()), "yyyy-MM-dd'T'HH").alias("arrived"),
            F.floor(F.log(LAG_CLASS, milliseconds + 1)).cast("int").alias("lag_class"),
        )
        .agg(F.count("*").alias("n"))
    )


def class_milliseconds(lag_class: int) -> float:
    """Return the middle of a class of lags in milliseconds."""
    return math.pow(LAG_CLASS, lag_class + 0.5) - 1


def coverage(records: DataFrame) -> DataFrame:
    """Return the number of records of each task and tap per hour, with the time of the first and the last."""
    unreadable = F.col("src_seq").isNull() & (F.col("observer") == "task")
    return records.groupBy(
        "landed", "task", "src_site", "src_entity", "role", "observer", "tap", "target", "peek", "outcome"
    ).agg(
        F.count("*").alias("n"),
        F.sum(unreadable.cast("bigint")).alias("unreadable"),
        F.sum((is_arrival() & F.col("order_key").isNotNull()).cast("bigint")).alias("in_order"),
        F.max(F.coalesce("handed_over", F.lit(False))).alias("handed_over"),
        F.min("journal_time").alias("first"),
        F.max("journal_time").alias("last"),
    )


def tables(records: DataFrame) -> dict[str, DataFrame]:
    """Return all tables of the index, by name, for compacted *records*."""
    return {
        "loose": records.where(is_loose()).select(*schema.COMPACTED),
        "digests": digests(records),
        "sessions": sessions(records),
        "behind": behind(records),
        "lags": lags(records),
        "coverage": coverage(records),
    }
