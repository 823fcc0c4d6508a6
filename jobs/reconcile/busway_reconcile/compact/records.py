"""Compacted records: their types and folders, how they are read, and their comparison with the raw ones."""

from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, TimestampType

from busway_reconcile.journal import schema
from busway_reconcile.journal.columns import checksum
from busway_reconcile.storage import Storage

RECORDS, TROUBLES = "records", "troubles"
"""What a parsed line is: a record or an invalid line."""

DISTINCT = ("src_seq", "enqueued_time", "journal_time", "message_id", "body_digest", "property_digest", "check")
"""Fields with values that are hardly ever equal."""

WRITE_OPTIONS = {f"parquet.enable.dictionary#{name}": "false" for name in DISTINCT}
"""Options for writing records: a dictionary of such values takes a tenth of the time."""

MATCHED = ("src_part", "src_seq", "enqueued_time")
"""Fields of a tap's record that compaction may complete."""


class CompactionFailed(Exception):
    """The compacted records differ from the raw ones; nothing was committed and no raw file changed."""


def compact_records(parsed: DataFrame) -> DataFrame:
    """
    Return parsed lines in the types of compacted records; nothing is added and nothing left out.

    Shape:   PARSED in; schema.COMPACTED, `path` and `trouble` of invalid lines, and their `kind` out.
    """
    times = {name: F.timestamp_micros(F.col(name)) for name in schema.TIMES}
    is_record = F.col("trouble").isNull()
    return parsed.withColumns({**times, "check": checksum()}).select(
        *schema.COMPACTED,
        "path",
        "trouble",
        F.when(is_record, RECORDS).otherwise(TROUBLES).alias("kind"),
    )


def read_records(spark: SparkSession, folder: str, hours: Iterable[str]) -> DataFrame | None:
    """Return the compacted records of *hours* in *folder*, or None without records; schema.COMPACTED."""
    storage = Storage(spark)
    paths = [path for hour in sorted(set(hours)) if storage.exists(path := f"{folder}/landed={hour}")]
    if not paths:
        return None
    return spark.read.option("basePath", folder).schema(schema.compacted()).parquet(*paths)


def current_name(task: str, renamed: Mapping[str, str]) -> str:
    """Return the name that *task* has now, after the renamings *renamed* (old to new)."""
    seen = {task}
    while task in renamed and renamed[task] not in seen:
        task = renamed[task]
        seen.add(task)
    return task


def rename_tasks(frame: DataFrame, renamed: Mapping[str, str]) -> DataFrame:
    """Return *frame* with the current names of its tasks."""
    task = F.col("task")
    for old in renamed:
        task = F.when(F.col("task") == old, F.lit(current_name(old, renamed))).otherwise(task)
    return frame.withColumn("task", task) if renamed else frame


class CompactedRecords:
    """The records in the folder of the compacted hours, with the current names of the tasks."""

    def __init__(self, spark: SparkSession, folder: str, renamed: Mapping[str, str]) -> None:
        """Read from *folder*; *renamed* are the renamings of tasks, old to new."""
        self.spark, self._folder, self._renamed = spark, folder, renamed
        self._read: dict[tuple[str, ...], DataFrame | None] = {}

    def of(self, hours: Iterable[str]) -> DataFrame | None:
        """Return the records of *hours*, or None without records."""
        wanted = tuple(sorted(set(hours)))
        if wanted not in self._read:
            frame = read_records(self.spark, f"{self._folder}/{RECORDS}", wanted)
            self._read[wanted] = None if frame is None else rename_tasks(frame, self._renamed)
        return self._read[wanted]


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
