"""Compacted records: their types and folders, how they are read, and their comparison with the raw ones."""

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal import schema
from busway_reconcile.journal.frames import looked_up
from busway_reconcile.storage import Storage

RECORDS = "records"
"""The folder of the compacted records."""

DISTINCT = ("src_seq", "enqueued_time", "journal_time", "message_id", "body_digest", "property_digest", "check")
"""Fields with values that are hardly ever equal."""

WRITE_OPTIONS = {f"parquet.enable.dictionary#{name}": "false" for name in DISTINCT}
"""Options for writing records: a dictionary of such values takes a tenth of the time."""

MATCHED = ("src_part", "src_seq", "enqueued_time")
"""Fields of a tap's record that compaction may complete."""


class CompactionFailed(Exception):
    """The compacted records differ from the raw ones; nothing was committed and no raw file changed."""


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
    current = looked_up("task", {old: current_name(old, renamed) for old in renamed}, "string")
    return frame.withColumn("task", F.coalesce(current, F.col("task"))) if renamed else frame


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


def verify_content(due: DataFrame, kept: DataFrame) -> None:
    """Raise CompactionFailed unless each record in *due*, of raw files, is in *kept* with all its content."""
    is_task = F.col("observer") == "task"
    content = F.xxhash64(*(F.when(is_task, F.col(name)) if name in MATCHED else F.col(name) for name in schema.FIELDS))
    raw, there = (frame.select("landed", content.alias("content")).distinct() for frame in (due, kept))
    lost = raw.join(there, ["landed", "content"], "left_anti").groupBy("landed").count().orderBy("landed").head()
    if lost is not None:
        raise CompactionFailed(
            f"{lost['landed']}: {lost['count']} records of the raw files are not among the compacted ones, expected all"
        )
