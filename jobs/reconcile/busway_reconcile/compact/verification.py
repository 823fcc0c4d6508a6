"""Verification of compacted records against the raw ones, before these are deleted."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, TimestampType

from busway_reconcile.journal import schema
from busway_reconcile.journal.columns import checksum

MATCHED = ("src_part", "src_seq", "enqueued_time")
"""Fields of a tap's record that compaction may complete."""


class CompactionFailed(Exception):
    """The compacted records differ from the raw ones; nothing was committed and no raw file changed."""


def verify_content(good: DataFrame, kept: DataFrame) -> None:
    """Raise CompactionFailed unless each record in *good*, parsed lines, is in *kept* with all its content."""
    due, there = (
        frame.select("landed", F.xxhash64(*_contents(frame)).alias("content")).distinct() for frame in (good, kept)
    )
    lost = due.join(there, ["landed", "content"], "left_anti").groupBy("landed").count().orderBy("landed").head()
    if lost is not None:
        raise CompactionFailed(
            f"{lost['landed']}: {lost['count']} records of the raw files are not among the compacted ones, expected all"
        )


def _contents(frame: DataFrame) -> list[Column]:
    """Return the columns that compaction does not change, in a form that raw and compacted records share."""
    found = []
    is_task = F.col("observer") == "task"
    for name in schema.FIELDS:
        is_time = isinstance(frame.schema[name].dataType, TimestampType)
        column = F.unix_micros(name) if is_time else F.col(name)
        if name == "check" and isinstance(frame.schema[name].dataType, StringType):
            column = checksum()
        found.append(F.when(is_task, column) if name in MATCHED else column)
    return found
