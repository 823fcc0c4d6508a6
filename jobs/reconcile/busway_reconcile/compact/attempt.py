"""An attempt to compact hours: the records of their raw files in a folder of their own, before any is committed."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.compact.coverage import coverage, total
from busway_reconcile.compact.records import RECORDS, TROUBLES, WRITE_OPTIONS, CompactionFailed, read_records
from busway_reconcile.compact.tap_matching import match_taps
from busway_reconcile.journal.problems import Problem
from busway_reconcile.read.copies import copy_problems, find_copies
from busway_reconcile.read.files import JournalFile
from busway_reconcile.read.lines import empty_files, torn_files
from busway_reconcile.read.records import parse_files, record_problems
from busway_reconcile.session import fit
from busway_reconcile.storage import Storage

Coverage = dict[str, list[dict[str, Any]]]
"""Rows of COVERAGE by hour."""

ToRecords = Callable[[DataFrame], DataFrame]


class Written(NamedTuple):
    """The coverage of the hours that were written, and the problems of the files that they were read from."""

    coverage: Coverage
    problems: list[Problem]


def write_attempt(
    spark: SparkSession,
    storage: Storage,
    files: Sequence[JournalFile],
    attempt: str,
    *,
    among: Sequence[JournalFile],
    to_records: ToRecords,
) -> Written:
    """
    Write the records of *files* below *attempt*/records, each raw file read once.

    Shape:   copies of files in *among* are not read.
    Raises:  CompactionFailed if there are fewer or more records than were read.
    """
    copied = find_copies(storage, files, among) if files else {}
    wanted = [file for file in files if file.file.size and file.file.path not in copied]
    problems = [*empty_files(files), *copy_problems(files, copied)]
    read, covered = 0, dict[str, list[dict[str, Any]]]()
    if str(spark.sparkContext.master).startswith("local"):
        # Imported here: the driver of a cluster may lack pyarrow.
        from busway_reconcile.compact.faultless import write_faultless  # noqa: PLC0415

        faultless = write_faultless(wanted, _records(attempt), spark.sparkContext.defaultParallelism)
        wanted = [file for file in wanted if file.file.path not in faultless.paths]
        read, covered = faultless.records, faultless.coverage
    if wanted:
        fit(spark, sum(file.file.size for file in wanted))
        others = _write_lines(spark, storage, wanted, attempt, to_records)
        read += others.records
        problems += others.problems
        covered = _covered(spark, attempt, {file.hour for file in files})
    kept = sum(total(rows, "n") for rows in covered.values())
    if kept != read:
        raise CompactionFailed(f"kept {kept} records, expected {read} as they were read")
    if any(total(rows, "unmatched") for rows in covered.values()):
        covered = _match(spark, storage, attempt, covered)
    return Written(covered, problems)


def attempted_records(attempt: str, hour: str) -> str:
    """Return the folder below *attempt* that has the records of *hour*."""
    return f"{_records(attempt)}/landed={hour}"


def _records(attempt: str) -> str:
    return f"{attempt}/{RECORDS}"


class _Lines(NamedTuple):
    """The number of records in the lines of files, and the problems of these."""

    records: int
    problems: list[Problem]


def _write_lines(
    spark: SparkSession, storage: Storage, files: Sequence[JournalFile], attempt: str, to_records: ToRecords
) -> _Lines:
    """Write the records of *files* in one pass; if a file turns out to be torn, find all torn ones and begin again."""
    paths, lines = [file.file.path for file in files], f"{attempt}/lines"
    torn: dict[str, Problem] = {}
    try:
        read = _write_once(spark, paths, [], lines, to_records)
    except (PySparkException, Py4JJavaError):  # Spark 4 and 3.5 wrap a failed task differently
        torn = torn_files(spark, files)
        if not torn:
            raise
        storage.delete(lines)
        read = _write_once(spark, [path for path in paths if path not in torn], list(torn), lines, to_records)
    problems = [*torn.values()]
    if storage.exists(f"{lines}/kind={TROUBLES}"):
        rows = spark.read.parquet(f"{lines}/kind={TROUBLES}").groupBy("path", "trouble").count().collect()
        problems += record_problems((row.asDict() for row in rows), files)
    _gather(storage, f"{lines}/kind={RECORDS}", _records(attempt))
    return _Lines(read, problems)


def _gather(storage: Storage, source: str, target: str) -> None:
    """Move the records in *source* to those in *target*."""
    if storage.exists(source) and not storage.exists(target):
        storage.move(source, target)
        return
    for hour in storage.folders(source):
        for file in storage.files(f"{source}/{hour}"):
            storage.move(file.path, f"{target}/{hour}/{file.path.rpartition('/')[2]}")


def _write_once(
    spark: SparkSession, whole: Sequence[str], torn: Sequence[str], folder: str, to_records: ToRecords
) -> int:
    """Write parsed lines and return the number of records among them."""
    counted = Observation()
    parsed = parse_files(spark, whole, torn).observe(counted, F.count_if(F.col("trouble").isNull()).alias("records"))
    to_records(parsed).write.options(**WRITE_OPTIONS).partitionBy("kind", "landed").mode("overwrite").parquet(folder)
    return int(counted.get.get("records") or 0)


def _covered(spark: SparkSession, attempt: str, hours: Iterable[str]) -> Coverage:
    kept = read_records(spark, _records(attempt), hours)
    return {} if kept is None else coverage(kept)


def _match(spark: SparkSession, storage: Storage, attempt: str, hours: Iterable[str]) -> Coverage:
    """Give the records of taps the numbers of their messages; return the coverage of the result."""
    storage.move(_records(attempt), f"{attempt}/unmatched")
    unmatched = read_records(spark, f"{attempt}/unmatched", hours)
    if unmatched is not None:
        matched = match_taps(unmatched).write.options(**WRITE_OPTIONS)
        matched.partitionBy("landed").mode("overwrite").parquet(_records(attempt))
    return _covered(spark, attempt, hours)
