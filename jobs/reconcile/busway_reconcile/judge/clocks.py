"""
Times that a task's records claim, held against the times of the source.

The source locks a message for five minutes at most, so that the end of a lock shows a time that it had reached. An end
later than five minutes after the record is no lock's: messages of sessions name one in the year 10000.

The clock of an instance may be ahead. A message is received after its source has enqueued it, so that the clock is
ahead by at most the shortest time between the two, among the messages that the instance received in the hour, and this
message itself.
"""

from datetime import timedelta

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.compact.records import CompactedRecords
from busway_reconcile.journal.columns import micros
from busway_reconcile.journal.problems import Problem
from busway_reconcile.judge.messages import BATCH

LONGEST_LOCK = timedelta(minutes=5)
"""The longest lock that Service Bus allows."""

_WRITER = ("instance", "landed")


def mark_source_time(records: DataFrame, compacted: CompactedRecords) -> DataFrame:
    """
    Return *records* with `source_time`: for an `expired` outcome, a time that the source's clock had reached.

    Units:   microseconds since 1970; null for other records, and without a received message of the hour or the batch.
    Shape:   *compacted* has all records of the hours in which messages were withheld, also before the window.
    """
    longest = round(LONGEST_LOCK.total_seconds() * 1_000_000)
    begun = micros("locked_until") - longest
    locked = F.when(begun <= micros("journal_time"), begun)
    is_claim, is_entry = F.col("outcome") == "expired", F.col("outcome") == "received"
    claims = records.where(is_claim).select(*_WRITER).distinct()
    observed = compacted.of(row["landed"] for row in claims.select("landed").distinct().collect())
    if observed is None:
        return records.withColumn("source_time", F.when(is_claim, locked))
    lag = micros("journal_time") - micros("enqueued_time")
    received = observed.where(is_entry & (F.col("observer") == "task")).join(F.broadcast(claims), [*_WRITER])
    of_hour = received.groupBy(*_WRITER).agg(F.min(lag).alias("lag"))
    # A batch that waits may be the only one that its instance received, in the hour before.
    of_batch = F.max(F.when(is_entry, lag)).over(Window.partitionBy(*BATCH))
    marked = records.withColumn("lag_of_batch", of_batch).join(F.broadcast(of_hour), [*_WRITER], "left")
    least = F.least("lag", "lag_of_batch")
    ahead = F.when(least.isNotNull(), F.greatest(least, F.lit(0)))
    known = F.when(is_claim, F.greatest(micros("journal_time") - ahead, locked))
    return marked.withColumn("source_time", known).drop("lag", "lag_of_batch")


def expiry_problems(verdicts: DataFrame) -> list[Problem]:
    """Return a problem for each instance that withheld messages as expired whose life had not ended by the source."""
    doubtful = verdicts.where("size(unproven) > 0").select("task", F.explode("unproven").alias("instance"))
    rows = doubtful.groupBy("task", "instance").count().collect()
    return [
        Problem(
            "clocks-disagree",
            f"{row['task']}, instance {row['instance']}",
            f"it withheld {row['count']} messages as expired whose life had not ended by the times of the source: "
            "its clock may be ahead",
            row["task"],
        )
        for row in sorted(rows)
    ]
