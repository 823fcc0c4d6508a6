"""
Order: the arrivals that came after a later message of their session or partition key.

The clocks of two instances differ: their records are in order only if they are more than CLOCKS_DIFFER apart.
"""

from collections import defaultdict
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal.columns import arrival_order, is_arrival, micros, stream
from busway_reconcile.journal.frames import looked_up
from busway_reconcile.settings import Settings

CLOCKS_DIFFER = round(Settings.clock_tolerance.total_seconds() * 1_000_000)

ARRIVAL = ("session", "stream", "src_seq", "enqueued", "major", "minor", "clock")
"""An arrival of a message with an order key; `major` and `minor` give the order within its session."""


def doubtful(pairs: DataFrame) -> DataFrame:
    """Return `stream` and `src_seq` of the settled *pairs* that may have arrived after a later message."""
    in_time = Window.partitionBy("session").orderBy("major", "minor")
    before = F.max("src_seq").over(in_time.rowsBetween(Window.unboundedPreceding, -1))
    ordered = pairs.where("session is not null").select("session", "stream", "src_seq", "major", "minor", "is_settled")
    return ordered.withColumn("before", before).where("is_settled and src_seq < before").select("stream", "src_seq")


def arrivals_of(records: DataFrame) -> DataFrame:
    """Return the arrivals among completed *records*; ARRIVAL."""
    major, minor = arrival_order()
    named = records.where(is_arrival() & F.col("order_key").isNotNull() & F.col("src_seq").isNotNull())
    return named.select(
        _session().alias("session"),
        stream().alias("stream"),
        "src_seq",
        micros("enqueued_time").alias("enqueued"),
        major.alias("major"),
        minor.alias("minor"),
        # A tap's arrivals are in the order of the target, whichever instance wrote them.
        F.when(F.col("observer") == "task", F.xxhash64("instance")).alias("clock"),
    )


def first_position(number: str, enqueued: Column) -> tuple[Column, Column]:
    """Return the aggregates `least` and `since`: the lowest *number* and the earliest time *enqueued* of a group."""
    return F.min(number).alias("least"), F.min(F.coalesce(enqueued, F.lit(0))).alias("since")


def may_be_later(number: str, enqueued: Column) -> Column:
    """
    Return whether a message has a higher *number* or a later time than the first_position() of a group.

    Only such a message can be a later one that arrived before one of the group.
    """
    return (F.col(number) > F.col("least")) | F.coalesce(enqueued > F.col("since"), F.lit(True))


def out_of_order(arrivals: DataFrame) -> DataFrame:
    """Return those of *arrivals* that came after a later message of their session, as far as clocks show it."""
    of_all = Window.partitionBy("session").orderBy("major").rangeBetween(Window.unboundedPreceding, -CLOCKS_DIFFER)
    own = Window.partitionBy("session", "clock").orderBy("major", "minor")
    of_own = own.rowsBetween(Window.unboundedPreceding, -1)
    # Numbers start again when an entity is deleted and created, times do not: a later message has both higher.
    position = F.struct("enqueued", "src_seq")
    highest = F.greatest(F.max("src_seq").over(of_all), F.max("src_seq").over(of_own))
    latest = F.greatest(F.max(position).over(of_all), F.max(position).over(of_own))
    behind = (F.col("src_seq") < F.col("highest")) & (position < F.col("latest"))
    return arrivals.withColumns({"highest": highest, "latest": latest}).where(behind).select(*ARRIVAL)


def mark_out_of_order(
    records: DataFrame, behind: DataFrame | None, shared: Sequence[tuple[str, str, str]]
) -> DataFrame:
    """
    Return *records* with `is_behind`: whether a record of the window is one of the arrivals *behind*.

    Shape:   *shared* are the targets of several tasks, where a tap cannot tell their order.
    """
    if behind is None:
        return records.withColumn("is_behind", F.lit(False))
    view = ["session", "src_seq", "major", "minor"]
    marks = behind.select(*view).distinct().withColumn("is_behind", F.lit(True))
    major, minor = arrival_order()
    mixed = defaultdict[str, list[str]](list)
    for task, target, _ in shared:
        mixed[task].append(target)
    is_mixed = F.coalesce(F.array_contains(looked_up("task", mixed, "array<string>"), F.col("target")), F.lit(False))
    counts = is_arrival() & (F.col("known") == "window") & ((F.col("observer") == "task") | ~is_mixed)
    session = F.when(F.col("order_key").isNotNull(), _session())
    ordered = records.withColumns({"session": session, "major": major, "minor": minor})
    marked = ordered.join(marks, view, "left").drop("session", "major", "minor")
    return marked.withColumn("is_behind", F.coalesce(F.col("is_behind") & counts, F.lit(False)))


def _session() -> Column:
    """Return 64 bits that represent a session as `pairs` does: a stream, a target with its partition, an order key."""
    return F.xxhash64(stream(), F.xxhash64("target"), F.xxhash64("order_key"), F.col("tgt_part"))
