"""
Times that a task's records claim, held against the times of the source.

The clock of an instance may be ahead. A message is received after its source has enqueued it, so that the clock is
ahead by at most the shortest time between the two, among the messages that the instance received in the hour.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal.columns import micros
from jobs.reconcile.journal.problems import Problem

_WRITER = ("instance", "landed")


def mark_source_time(records: DataFrame, window: DataFrame | None) -> DataFrame:
    """
    Return *records* with `source_time`: for an `expired` outcome, a time that the source's clock had reached.

    Units:   microseconds since 1970; null for other records, and without a received message of the same hour.
    Shape:   *window* are all records of the window.
    """
    claims = records.where("outcome = 'expired'").select(*_WRITER).distinct()
    if window is None or claims.isEmpty():
        return records.withColumn("source_time", F.lit(None).cast("bigint"))
    received = window.where("outcome = 'received' and observer = 'task'").join(F.broadcast(claims), [*_WRITER])
    least = F.min(micros("journal_time") - micros("enqueued_time"))
    ahead = received.groupBy(*_WRITER).agg(F.greatest(least, F.lit(0)).alias("ahead"))
    known = F.when(F.col("outcome") == "expired", micros("journal_time") - F.col("ahead"))
    return records.join(F.broadcast(ahead), [*_WRITER], "left").withColumn("source_time", known).drop("ahead")


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
