"""
Taps whose view lacks the number that the task's source gave a message, put beside the message that they saw.

1. A tap at the target of a hub does not know the source's partition: the message of that sequence number and enqueued
   time is the one; where several partitions have one, that which is otherwise equal.
2. A tap at another subscription of the source's topic numbers for itself: the message with the same id is the one, or
   of those without an id the one with the same content; the first that it saw being the first that the task received.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.joins import join_null_safe

_SOURCE = ("task", "src_site", "src_entity")


def unplaced() -> Column:
    """Tell of a record whether it is a tap's and may still find its message."""
    tap = F.col("observer") == "tap"
    at_target = (F.col("role") == "target") & F.col("src_seq").isNotNull() & F.col("src_part").isNull()
    at_source = (F.col("role") == "source") & F.col("src_seq").isNull()
    return tap & (at_target | at_source)


def placed(records: DataFrame) -> DataFrame:
    """Return *records*, each tap's with the source's number where the task received its message in them."""
    loose = records.where(unplaced())
    received = records.where((F.col("outcome") == "received") & F.col("src_seq").isNotNull())
    at_target = _by_number(loose.where("role = 'target'"), received)
    at_source = _by_id_or_content(loose.where("role = 'source'"), received)
    return records.where(~unplaced()).unionByName(at_target).unionByName(at_source)


def _by_number(loose: DataFrame, received: DataFrame) -> DataFrame:
    shared = (*_SOURCE, "src_seq", "enqueued_time")
    candidates = received.groupBy(*shared, F.col("src_part").alias("found")).agg(
        F.max("message_id").alias("found_id"), F.max("check").alias("found_check")
    )
    seen = loose.withColumn("nth", F.dense_rank().over(Window.partitionBy(*shared).orderBy("tgt_part", "tgt_seq")))
    likeness = F.col("message_id").eqNullSafe(F.col("found_id")).cast("int") * 2 + F.col("check").eqNullSafe(
        F.col("found_check")
    ).cast("int")
    view = ("tap", "target", "tgt_part", "tgt_seq", "instance", "batch_id")
    of_view = Window.partitionBy(*shared, *view)
    paired = (
        seen.join(candidates, list(shared), "left")
        .withColumn("likeness", F.coalesce(likeness, F.lit(0)))
        .withColumn("best", F.max("likeness").over(of_view))
        .where("likeness = best")
        # Messages that are equal in all are told apart by nothing: each gets one of the views.
        .withColumn("choices", F.count("*").over(of_view))
        .withColumn("choice", F.row_number().over(of_view.orderBy("found")))
        .where("choice = (nth - 1) % choices + 1")
    )
    return paired.withColumn("src_part", F.coalesce("src_part", "found")).select(*loose.columns)


def _by_id_or_content(loose: DataFrame, received: DataFrame) -> DataFrame:
    shared = (*_SOURCE, "message_id", "content")
    content = F.when(F.col("message_id").isNull(), F.col("check"))
    candidates = (
        received.withColumn("content", content)
        .groupBy(*shared, F.col("src_part").alias("found_part"), F.col("src_seq").alias("found_seq"))
        .agg(F.min("enqueued_time").alias("found_time"))
        .withColumn("nth", F.row_number().over(Window.partitionBy(*shared).orderBy("found_time", "found_seq")))
    )
    by_tap = Window.partitionBy(*shared, "tap").orderBy("tgt_part", "tgt_seq")
    seen = loose.withColumn("content", content).withColumn("nth", F.dense_rank().over(by_tap))
    return (
        join_null_safe(seen, candidates, [*shared, "nth"], "left")
        .withColumn("src_part", F.coalesce("src_part", "found_part"))
        .withColumn("src_seq", F.col("found_seq"))
        # The tap's subscription took it a moment before or after; the message is the task's.
        .withColumn("enqueued_time", F.coalesce("found_time", "enqueued_time"))
        .select(*loose.columns)
    )
