"""The lines of raw journal files, torn ones included."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, StructField, StructType

from busway_reconcile.journal.problems import EMPTY, Problem
from busway_reconcile.read.files import JournalFile
from busway_reconcile.read.gzip_members import whole_members

if TYPE_CHECKING:
    import pyarrow as pa


def empty_files(files: Sequence[JournalFile]) -> list[Problem]:
    """
    Return a problem for each of *files* without content.

    A writer that ends before its first record leaves such a file. It makes that of the outcomes after it has written an
    entry: if all files of an instance and hour are empty, on both sides, their content is lost.
    """
    of_instance: dict[tuple[str, str, str], list[JournalFile]] = defaultdict(list)
    for file in files:
        of_instance[file.task, file.hour, file.name.rpartition("-")[0]].append(file)
    problems = []
    for same in of_instance.values():
        empty = [file for file in same if not file.file.size]
        is_lost = len(empty) == len(same) and len({file.role for file in empty}) > 1
        kind, rest = ("torn-file", ", nor have the others of its instance and hour") if is_lost else (EMPTY, "")
        problems += [_problem(kind, file, f"the file has no content{rest}") for file in empty]
    return problems


def torn_files(spark: SparkSession, files: Sequence[JournalFile]) -> dict[str, Problem]:
    """Return the problem of each of *files* that is torn, by its path; this reads all of them."""
    paths = {file.file.path: file for file in files if file.file.size}
    rows = _members(spark, list(paths), with_lines=False).select(decoded("path").alias("path"), "trouble").collect()
    return {row["path"]: _problem("torn-file", paths[row["path"]], row["trouble"]) for row in sorted(rows)}


def lines_of_whole_members(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the lines (`value`, `path`) of the whole gzip members of torn files."""
    return _members(spark, paths).where("trouble is null").select("value", "path")


def _problem(kind: str, file: JournalFile, trouble: str) -> Problem:
    return Problem(kind, file.file.path, trouble, file.task, file.role, (file.hour,))


def decoded(path: str) -> Column:
    """Return the column *path* as storage writes it."""
    # Spark encodes addresses as in a URL, which changes some task names.
    return F.expr(f"url_decode(replace({path}, '+', '%2B'))")


def _members(spark: SparkSession, paths: Sequence[str], *, with_lines: bool = True) -> DataFrame:
    """Return the lines of whole members, and one row with `trouble` for each torn file."""
    shape = StructType([StructField(name, StringType()) for name in ("value", "path", "trouble")])
    files = spark.read.format("binaryFile").load(list(paths)).select("path", "content")

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

    return files.mapInArrow(cut, shape)
