"""
What compaction keeps beside the records, so that a night need not read them all.

digests   per hour, task, partition, block of sequence numbers, side and target: counts and order-free sums of hashes
sessions  per hour and order key: the highest sequence number that arrived
behind    arrivals that came after a later message of their session or key
lags      how long messages took, in classes of 5 %
coverage  per hour, who wrote how much, from when to when
"""

import math

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import schema
from jobs.reconcile.placement import unplaced
from jobs.reconcile.settings import Settings

BLOCK = 32
"""Sequence numbers in a bucket (64 at most): few, so that a bad one in a thousand brings few others to be looked at."""

LAG_CLASS = 1.05

CLOCKS_DIFFER = round(Settings.clock_tolerance.total_seconds() * 1_000_000)

VERSION = 2
"""Of the tables of this module but the records: raised with whatever would make others of the same records."""

TABLES = ("records", "loose", "digests", "sessions", "behind", "lags", "coverage")

BUCKET = ("task", "src_site", "src_entity", "src_part", "block")

SESSION = ("task", "observer", "target", "tgt_part", "src_site", "src_entity", "src_part", "order_key")


def block(size: int = BLOCK) -> Column:
    """The number of the bucket that a record belongs to, where buckets have *size* numbers."""
    # The numbers of partitioned entities are above 2^53, where a quotient of floating point is another number's.
    return F.expr(f"src_seq div {size}")


def micros(name: str) -> Column:
    """The time *name* in microseconds since 1970."""
    return F.unix_micros(F.col(name))


def unnumbered() -> Column:
    """Tell of a record whether it is in no bucket."""
    return unplaced() | F.col("src_seq").isNull()


def is_loose() -> Column:
    """Tell of a record whether a night looks at it in any case: it is in no bucket, or says that one was given up."""
    return (unnumbered() & (F.col("outcome") != schema.GAP)) | F.col("given_up_by").isNotNull()


def is_arrival() -> Column:
    """Tell of a record whether it shows a copy at a target."""
    sent = (F.col("outcome") == "sent") & ~F.coalesce(F.col("remembered"), F.lit(False))
    return sent | ((F.col("observer") == "tap") & (F.col("role") == "target"))


def arrival_time() -> Column:
    """When the copy that the record shows arrived, as its observer knows it, in microseconds since 1970."""
    return F.coalesce(micros("tgt_enqueued_time"), micros("journal_time"))


def arrival_order() -> tuple[Column, Column]:
    """Two numbers by which the arrivals at one target are in order."""
    tap = F.col("observer") == "tap"
    return (
        F.when(tap, F.col("tgt_seq")).otherwise(micros("journal_time")),
        F.when(tap, F.lit(0)).otherwise(F.col("batch_id") * 100_000 + F.coalesce(F.col("send_ordinal"), F.lit(0))),
    )


def is_round_trip() -> Column:
    """Tell of a record whether the message has come back to a site that it had left for another one."""
    # Handed over within a site, it is there only once.
    stays = F.filter(
        F.transform("hops", lambda site, at: F.struct(site.alias("site"), at.alias("at"))),
        lambda each: (
            (each["at"] == 0)
            | (each["site"] != F.get(F.col("hops"), F.when(each["at"] > 0, each["at"] - 1).otherwise(F.lit(0))))
        ),
    )
    sites = F.transform(stays, lambda each: each["site"])
    again = F.size(F.array_distinct(sites)) < F.size(sites)
    # The last one of hops is the source's own site, to which a message may go without leaving it.
    there = F.substring_index("target", "/", 1)
    back = F.array_contains(F.col("hops"), there) & (F.element_at("hops", -1) != there)
    seen_there = (F.col("observer") == "tap") & (F.col("role") == "target") & back
    return F.coalesce(again, F.lit(False)) | F.coalesce(seen_there, F.lit(False))


def digests(records: DataFrame, size: int = BLOCK) -> DataFrame:
    """Return the digests of compacted *records* in buckets of *size* sequence numbers."""
    tapped = F.when(F.col("observer") == "tap", F.concat(F.lit("tap-"), F.col("role")))
    remembered = F.coalesce(F.col("remembered"), F.lit(False))
    # Sent in another message's envelope, it has no copy that a tap could see.
    outcome = F.when(F.col("joined"), F.lit("joined")).otherwise(F.col("outcome"))
    unusual = (
        (F.coalesce(F.col("parts"), F.lit(1)) > 1)
        | F.col("part").isNotNull()
        | remembered
        | F.coalesce(F.col("peek"), F.lit(False))
        | F.col("enqueued_time").isNull()
        | (F.col("outcome") == "retry")
        | is_round_trip()
    )
    numbered = records.where(~unnumbered())
    lag = F.when(is_arrival(), arrival_time() - micros("enqueued_time"))
    return numbered.groupBy(
        "landed", *BUCKET[:4], block(size).alias("block"), F.coalesce(tapped, outcome).alias("side"), "target"
    ).agg(
        F.count("*").alias("n"),
        # Which numbers of the block there are, a bit for each.
        F.bit_or(F.expr(f"shiftleft(1L, cast(pmod(src_seq, {size}) as int))")).alias("bits"),
        _sum_of_hashes("src_seq", "enqueued_time").alias("keys"),
        _sum_of_hashes("src_seq", "entry_check").alias("entered"),
        _sum_of_hashes("src_seq", "check").alias("contents"),
        F.sum(F.col("edited").isNotNull().cast("bigint")).alias("edited"),
        F.sum(F.coalesce(unusual, F.lit(True)).cast("bigint")).alias("unusual"),
        F.min(micros("enqueued_time")).alias("first_enqueued"),
        F.min(lag).alias("least_lag"),
        F.max(lag).alias("most_lag"),
    )


def _sum_of_hashes(*names: str) -> Column:
    # 40 bits each: no number of records that a bucket can hold makes the sum overflow.
    return F.sum(F.shiftright(F.xxhash64(*names), 24))


def ordered_arrivals(records: DataFrame) -> DataFrame:
    """Return the arrivals that have an order to keep, and by `major` and `minor` what it was."""
    major, minor = arrival_order()
    return records.where(is_arrival() & F.col("order_key").isNotNull() & F.col("src_seq").isNotNull()).select(
        "landed",
        *SESSION,
        "src_seq",
        "enqueued_time",
        major.alias("major"),
        minor.alias("minor"),
        # A tap's arrivals are in the order of the target, whichever instance tells of them.
        F.when(F.col("observer") == "task", F.xxhash64("instance")).alias("clock"),
    )


def behind(records: DataFrame) -> DataFrame:
    """
    Return the arrivals that came after a later message of their order key, as far as their hour shows it.

    Two instances have two clocks: what they tell is in order where it lies farther apart than clocks may differ.
    """
    session = Window.partitionBy("landed", *SESSION)
    in_time = session.orderBy("major", "minor")
    before = F.max("src_seq").over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    is_in_doubt = F.max(F.col("src_seq") < F.col("highest_before")).over(
        in_time.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    doubted = ordered_arrivals(records).withColumn("highest_before", before).withColumn("is_in_doubt", is_in_doubt)
    # What is left are the few sessions in which a number came after a higher one.
    of_all = session.orderBy("major").rangeBetween(Window.unboundedPreceding, -CLOCKS_DIFFER)
    own = Window.partitionBy("landed", *SESSION, "clock").orderBy("major", "minor")
    of_own = own.rowsBetween(Window.unboundedPreceding, -1)
    # Numbers begin again when an entity is made anew, but not the time: a later message has more of both.
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
    """Return per hour, order key and clock what the next hours need to know of it."""
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
    """Return per hour of arrival, task, observer and target how many arrivals took how long."""
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
    """Return the middle of a class of lags."""
    return math.pow(LAG_CLASS, lag_class + 0.5) - 1


def coverage(records: DataFrame) -> DataFrame:
    """Return who wrote how much in each hour, and when the first and the last of it."""
    unreadable = F.col("src_seq").isNull() & (F.col("observer") == "task")
    return records.groupBy(
        "landed", "task", "src_site", "src_entity", "role", "observer", "tap", "target", "peek", "outcome"
    ).agg(
        F.count("*").alias("n"),
        F.sum(unreadable.cast("bigint")).alias("unreadable"),
        F.sum((is_arrival() & F.col("order_key").isNotNull()).cast("bigint")).alias("in_order"),
        F.min("journal_time").alias("first"),
        F.max("journal_time").alias("last"),
    )


def tables(records: DataFrame) -> dict[str, DataFrame]:
    """Return all tables but the records themselves."""
    return {
        "loose": records.where(is_loose()).select(*schema.compacted().names),
        "digests": digests(records),
        "sessions": sessions(records),
        "behind": behind(records),
        "lags": lags(records),
        "coverage": coverage(records),
    }
