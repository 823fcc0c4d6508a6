"""
Matching of tap records without the source's number to the messages that the task received.

1. A tap at the target of a hub does not know the source's partition. Its record matches the message with the same
   sequence number and enqueued time; if several partitions have one, the message with the same id and content.
2. A tap at another subscription of the source's topic has its own sequence numbers. Its record matches the message with
   the same id, or without an id the one with the same content, in the order in which both saw them.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal.columns import needs_match
from jobs.reconcile.journal.null_safe_joins import join_null_safe

_SOURCE = ("task", "src_site", "src_entity")


def match_taps(records: DataFrame) -> DataFrame:
    """
    Return *records*, with the source's number in each tap record whose message the task received in them.

    Shape:   the columns of *records*.
    """
    unmatched = records.where(needs_match())
    received = records.where((F.col("outcome") == "received") & F.col("src_seq").isNotNull())
    at_target = _by_number(unmatched.where("role = 'target'"), received)
    at_source = _by_id_or_content(unmatched.where("role = 'source'"), received)
    return records.where(~needs_match()).unionByName(at_target).unionByName(at_source)


def _by_number(unmatched: DataFrame, received: DataFrame) -> DataFrame:
    shared = (*_SOURCE, "src_seq", "enqueued_time")
    candidates = received.groupBy(*shared, F.col("src_part").alias("found_part")).agg(
        F.max("message_id").alias("found_id"), F.max("check").alias("found_check")
    )
    seen = unmatched.withColumn("nth", F.dense_rank().over(Window.partitionBy(*shared).orderBy("tgt_part", "tgt_seq")))
    similarity = F.col("message_id").eqNullSafe(F.col("found_id")).cast("int") * 2 + F.col("check").eqNullSafe(
        F.col("found_check")
    ).cast("int")
    view = ("tap", "target", "tgt_part", "tgt_seq", "instance", "batch_id")
    of_view = Window.partitionBy(*shared, *view)
    paired = (
        seen.join(candidates, list(shared), "left")
        .withColumn("similarity", F.coalesce(similarity, F.lit(0)))
        .withColumn("best", F.max("similarity").over(of_view))
        .where("similarity = best")
        # Messages that are equal in every field cannot be distinguished: each gets one of the tap records.
        .withColumn("choices", F.count("*").over(of_view))
        .withColumn("choice", F.row_number().over(of_view.orderBy("found_part")))
        .where("choice = (nth - 1) % choices + 1")
    )
    return paired.withColumn("src_part", F.coalesce("src_part", "found_part")).select(*unmatched.columns)


def _by_id_or_content(unmatched: DataFrame, received: DataFrame) -> DataFrame:
    shared = (*_SOURCE, "message_id", "content")
    content = F.when(F.col("message_id").isNull(), F.col("check"))
    candidates = (
        received.withColumn("content", content)
        .groupBy(*shared, F.col("src_part").alias("found_part"), F.col("src_seq").alias("found_seq"))
        .agg(F.min("enqueued_time").alias("found_time"))
        .withColumn("nth", F.row_number().over(Window.partitionBy(*shared).orderBy("found_time", "found_seq")))
    )
    by_tap = Window.partitionBy(*shared, "tap").orderBy("tgt_part", "tgt_seq")
    seen = unmatched.withColumn("content", content).withColumn("nth", F.dense_rank().over(by_tap))
    return (
        join_null_safe(seen, candidates, [*shared, "nth"], "left")
        .withColumn("src_part", F.coalesce("src_part", "found_part"))
        .withColumn("src_seq", F.col("found_seq"))
        # Subscriptions get a message at slightly different times: the time at the task's source counts.
        .withColumn("enqueued_time", F.coalesce("found_time", "enqueued_time"))
        .select(*unmatched.columns)
    )
