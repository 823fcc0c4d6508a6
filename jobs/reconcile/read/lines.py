"""The lines of raw journal files, torn ones included."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, StructField, StructType

from jobs.reconcile.journal.problems import EMPTY, Problem
from jobs.reconcile.read.files import JournalFile
from jobs.reconcile.read.gzip_members import whole_members

if TYPE_CHECKING:
    import pyarrow as pa


class Lines(NamedTuple):
    """The lines (`value`, `path`) of some files, their number by path, and the problems of the files."""

    frame: DataFrame
    counts: dict[str, int]
    problems: list[Problem]


def read_lines(spark: SparkSession, files: Sequence[JournalFile]) -> Lines:
    """Return the lines of *files*; of a torn file, the lines of its whole members."""
    paths = {each.file.path: each for each in files if each.file.size}
    empty = [_problem(EMPTY, each, "the file has no content") for each in files if not each.file.size]
    if not paths:
        return Lines(spark.createDataFrame([], "value string, path string"), {}, empty)
    try:
        frame = _text(spark, list(paths))
        return Lines(frame, _counted(frame), empty)
    except (PySparkException, Py4JJavaError):  # Spark 4 and 3.5 wrap a failed task differently
        torn = {
            row["path"]: row["trouble"]
            for row in _members(spark, list(paths), with_lines=False).select("path", "trouble").collect()
        }
        if not torn:
            raise
    whole = [path for path in paths if path not in torn]
    frame = _members(spark, list(torn)).where("trouble is null")
    if whole:
        frame = frame.select("value", "path").unionByName(_text(spark, whole))
    problems = [_problem("torn-file", paths[path], trouble) for path, trouble in sorted(torn.items())]
    return Lines(frame.select("value", "path"), _counted(frame), [*empty, *problems])


def _problem(kind: str, file: JournalFile, trouble: str) -> Problem:
    return Problem(kind, file.file.path, trouble, file.task, file.role, (file.hour,))


def decoded(path: str) -> Column:
    """Return the column *path* as storage writes it."""
    # Spark encodes addresses as in a URL, which changes some task names.
    return F.expr(f"url_decode(replace({path}, '+', '%2B'))")


def _text(spark: SparkSession, paths: list[str]) -> DataFrame:
    return spark.read.text(paths).select("value", decoded("_metadata.file_path").alias("path"))


def _counted(frame: DataFrame) -> dict[str, int]:
    return {row["path"]: row["count"] for row in frame.groupBy("path").count().collect()}


def _members(spark: SparkSession, paths: list[str], *, with_lines: bool = True) -> DataFrame:
    """Return the lines of whole members, and one row with `trouble` for each torn file."""
    shape = StructType([StructField(name, StringType()) for name in ("value", "path", "trouble")])
    files = spark.read.format("binaryFile").load(paths).select("path", "content")

    def cut(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa  # noqa: PLC0415 - runs on a worker; the driver may lack it

        for batch in batches:
            for path, content in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                lines, trouble = whole_members(content)
                values: list[str | None] = [line.decode("utf-8", "replace") for line in lines if with_lines]
                troubles: list[str | None] = [None] * len(values)
                if trouble is not None:
                    values.append(None)
                    troubles.append(trouble)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(values, pa.string()),
                        pa.array([path] * len(values), pa.string()),
                        pa.array(troubles, pa.string()),
                    ],
                    names=["value", "path", "trouble"],
                )

    return files.mapInArrow(cut, shape).withColumn("path", decoded("path"))
