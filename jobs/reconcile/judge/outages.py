"""Outages of tasks: whether a task finished any message during the life of one that its source let expire."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal import schema
from jobs.reconcile.journal.columns import micros
from jobs.reconcile.journal.small_frames import frame_of

_MINUTE = 60_000_000


def mark_outages(messages: DataFrame, window: DataFrame | None, before: Sequence[Mapping[str, Any]]) -> DataFrame:
    """
    Return *messages* with `worked_before`, `worked_during` and `worked_after`.

    They are times at which the task finished messages: the last one before the life of the message that it had left,
    any one during it, and the first one after it; null where it finished none, or the message has no life.
    Units:   microseconds since 1970.
    Shape:   *window* are all records of the window, *before* are the rows of COVERAGE of earlier hours: of these,
             the first and the last outcomes of each hour are known.
    """
    unsent = messages.where("expires is not null and size(sent_parts) = 0")
    tasks = [] if window is None else [row["task"] for row in unsent.select("task").distinct().collect()]
    if window is None or not tasks:
        nothing = F.lit(None).cast("bigint")
        return messages.withColumns(dict.fromkeys(("worked_before", "worked_during", "worked_after"), nothing))
    at = micros("journal_time")
    is_end = F.col("outcome").isin("sent", *schema.WITHHELD) & (F.col("observer") == "task")
    finished = window.where(is_end)
    by_minute = finished.where(F.col("task").isin(tasks)).groupBy("task", F.floor(at / _MINUTE).alias("minute"))
    moments = by_minute.agg(F.min(at).alias("first"), F.max(at).alias("last")).select(
        "task", F.explode(F.array("first", "last")).alias("moment")
    )
    earlier = [
        (row["task"], row[name])
        for row in before
        if row["outcome"] in ("sent", *schema.WITHHELD) and row["observer"] == "task" and row["task"] in tasks
        for name in ("first", "last")
    ]
    if earlier:
        moments = moments.unionByName(frame_of(messages.sparkSession, earlier, "task string, moment bigint"))
    worked = moments.groupBy("task").agg(F.collect_set("moment").alias("worked"))
    # After a retry the task has the message no longer: what it finished before is no sign of the rest of its life.
    since = F.greatest("generation", F.col("last_retry"))
    return (
        messages.join(F.broadcast(worked), "task", "left")
        .withColumns(
            {
                "worked_before": F.array_max(F.filter("worked", lambda each: each <= since)),
                "worked_during": F.array_max(
                    F.filter("worked", lambda each: (each > since) & (each <= F.col("expires")))
                ),
                "worked_after": F.array_min(F.filter("worked", lambda each: each > F.col("expires"))),
            }
        )
        .drop("worked")
    )
