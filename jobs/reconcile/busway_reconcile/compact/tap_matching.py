"""
Matching of tap records without the source's number to the messages that the task received.

1. A tap at the target of a hub does not know the source's partition. Its record matches the message with the same
   sequence number and enqueued time; if several partitions have one, the message with the same id and content.
2. A tap at another subscription of the source's topic has its own sequence numbers. Its record matches a message with
   the same id, or without an id one with the same content, that was enqueued at about the same time and has no other
   record of this tap: each message that the task received explains one message that the tap saw.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal.columns import micros, needs_match
from busway_reconcile.journal.frames import join_null_safe
from busway_reconcile.settings import Settings

_SOURCE = ("task", "src_site", "src_entity")

SUBSCRIPTIONS_DIFFER = round(Settings.clock_tolerance.total_seconds() * 1_000_000)
"""How far the times may differ at which two subscriptions get a message, in microseconds."""

_FAR = 2 * SUBSCRIPTIONS_DIFFER


def match_taps(records: DataFrame) -> DataFrame:
    """
    Return *records*, with the source's number in each tap record whose message the task received in them.

    Shape:   the columns of *records*.
    """
    return match_at_source(match_at_target(records))


def match_at_target(records: DataFrame) -> DataFrame:
    """Do the same as match_taps() for the records of taps at targets only."""
    is_unmatched = needs_match() & (F.col("role") == "target")
    return records.where(~is_unmatched).unionByName(_by_number(records.where(is_unmatched), _received(records)))


def match_at_source(records: DataFrame) -> DataFrame:
    """Do the same as match_taps() for the records of taps at sources only."""
    is_unmatched = needs_match() & (F.col("role") == "source")
    unmatched, others = records.where(is_unmatched), records.where(~is_unmatched)
    matched = others.where("observer = 'tap' and role = 'source' and src_seq is not null")
    return others.unionByName(_by_id_or_content(unmatched, _received(others), matched))


def id_or_content() -> Column:
    """Return what a message has in common with the record of a tap that has sequence numbers of its own."""
    return F.coalesce(F.concat(F.lit("id "), "message_id"), F.col("check").cast("string"), F.lit(""))


def _received(records: DataFrame) -> DataFrame:
    return records.where((F.col("outcome") == "received") & F.col("src_seq").isNotNull())


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


def _by_id_or_content(unmatched: DataFrame, received: DataFrame, matched: DataFrame) -> DataFrame:
    # 64 bits in place of names are grouped several times as fast.
    feed, name = F.xxhash64(*_SOURCE, "tap").alias("feed"), F.xxhash64("feed", id_or_content())
    view = {"tap_part": F.col("tgt_part"), "tap_seq": F.col("tgt_seq"), "tap_time": F.col("enqueued_time")}
    named = unmatched.withColumns({"feed": feed, **view}).withColumn("name", name)
    found = ("found_part", "found_seq", "found_time")
    number = [
        F.col(own).alias(alias) for own, alias in zip(("src_part", "src_seq", "enqueued_time"), found, strict=True)
    ]
    taps = named.select(*_SOURCE, "tap").distinct()
    by_tap = received.drop("tap").join(F.broadcast(taps), list(_SOURCE)).withColumn("feed", feed)
    entered = by_tap.select("feed", name.alias("name"), *number).distinct()
    free = join_null_safe(entered, matched.select(feed, *number), ("feed", *found), "left_anti").drop("feed")
    pairs = _pairs(named.select("name", *view).distinct(), free, tuple(view), found)
    return (
        join_null_safe(named, pairs, ("name", *view), "left")
        .withColumn("src_part", F.coalesce("src_part", "found_part"))
        .withColumn("src_seq", F.col("found_seq"))
        # Subscriptions get a message at slightly different times: the time at the task's source counts.
        .withColumn("enqueued_time", F.coalesce("found_time", "enqueued_time"))
        .select(*unmatched.columns)
    )


def _pairs(seen: DataFrame, free: DataFrame, view: Sequence[str], found: Sequence[str]) -> DataFrame:
    """
    Return the *view* of each message that a tap saw beside the number *found* of one that the task received.

    By their order alone, a message that is lost would be explained by the next one, and so on: the one without a number
    would always be the youngest, which may be in flight. So those pair first that are nearest to each other.
    """
    both = seen.withColumns({"time": micros(view[-1]), "is_seen": F.lit(True)}).unionByName(
        free.withColumns({"time": micros(found[-1]), "is_seen": F.lit(False)}), allowMissingColumns=True
    )
    grouped = both.groupBy("name").agg(
        F.count_if("is_seen").alias("seen"),
        F.count_if(~F.col("is_seen")).alias("free"),
        *(F.max(name).alias(name) for name in (*view, *found)),
    )
    # Nearly all ids are unique: the others alone are sorted.
    is_near = F.abs(micros(view[-1]) - micros(found[-1])) <= SUBSCRIPTIONS_DIFFER
    alone = grouped.where("seen = 1 and free = 1").where(is_near)
    several = both.join(grouped.where("seen > 0 and free > 0 and seen + free > 2"), "name", "left_semi")
    names = ("name", *view, *found)
    return alone.select(*names).unionByName(_nearest(several, view, found).select(*names))


def _nearest(both: DataFrame, view: Sequence[str], found: Sequence[str]) -> DataFrame:
    """Return the pairs of _pairs() among *both*: what a tap saw, and what the task received, with one name."""
    order = ("time", "is_seen", *view, *found)
    in_time = Window.partitionBy("name").orderBy(*order)
    gap = F.when(F.lag("is_seen").over(in_time) != F.col("is_seen"), F.col("time") - F.lag("time").over(in_time))
    is_least = (F.col("gap") < F.lag("gap", 1, _FAR).over(in_time)) & (
        F.col("gap") <= F.lead("gap", 1, _FAR).over(in_time)
    )
    nearest = (
        both.withColumn("gap", F.coalesce(gap, F.lit(_FAR)))
        .withColumn("is_second", is_least & (F.col("gap") <= SUBSCRIPTIONS_DIFFER))
        .withColumn("is_paired", F.col("is_second") | F.lead("is_second", 1, False).over(in_time))
    )
    # Many that were enqueued at nearly the same time: among those that are left and near, the order decides.
    of_rest = Window.partitionBy("name", "is_paired").orderBy(*order)
    is_apart = F.col("time") - F.lag("time").over(of_rest) > SUBSCRIPTIONS_DIFFER
    together = Window.partitionBy("name", "is_paired", "cluster")
    number_seen, number_free = F.count_if("is_seen").over(together), F.count_if(~F.col("is_seen")).over(together)
    nth = F.row_number().over(Window.partitionBy("name", "is_paired", "cluster", "is_seen").orderBy(*order))
    matched = (
        nearest.withColumn("is_apart", F.coalesce(is_apart, F.lit(False)))
        .withColumn("cluster", F.count_if("is_apart").over(of_rest))
        .withColumns({"nth": nth, "number": F.least(number_seen, number_free)})
        .where("is_paired or nth <= number")
    )
    again = F.row_number().over(Window.partitionBy("name", "is_seen").orderBy(*order))
    rows = matched.withColumn("nth", again).groupBy("name", "nth")
    return rows.agg(*(F.max(name).alias(name) for name in (*view, *found))).drop("nth")
