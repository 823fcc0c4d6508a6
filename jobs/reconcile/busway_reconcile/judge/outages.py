"""Outages of tasks: whether a task finished any message during the life of one that its source let expire."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal.small_frames import frame_of


def mark_outages(
    messages: DataFrame, coverage: Iterable[Mapping[str, Any]], before: Iterable[Mapping[str, Any]]
) -> DataFrame:
    """
    Return *messages* with `worked_before`, `worked_during` and `worked_after`.

    They are times at which the task finished messages: the last one before the life of the message that it had left,
    any one during it, and the first one after it; null where it finished none, or the message has no life.
    Units:   microseconds since 1970.
    Shape:   *coverage* are the rows of COVERAGE of the window, of which the first and the last time in each minute are
             used, *before* are those of hours before it, of which the first and the last time in each hour are.
    """
    unsent = messages.where("expires is not null and size(sent_parts) = 0")
    finished: dict[str, set[int]] = defaultdict(set)
    for row in coverage:
        finished[row["task"]].update(row["finished"])
    for row in before:
        # Each message is compared with all times: the minutes of a week would be too many.
        finished[row["task"]].update((*row["finished"][:1], *row["finished"][-1:]))
    rows = [(each["task"], sorted(finished[each["task"]])) for each in unsent.select("task").distinct().collect()]
    if not rows:
        nothing = F.lit(None).cast("bigint")
        return messages.withColumns(dict.fromkeys(("worked_before", "worked_during", "worked_after"), nothing))
    worked = frame_of(messages.sparkSession, rows, "task string, worked array<bigint>")
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
