"""An attempt to compact hours: the records of their raw files in a folder of their own, before any is committed."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.compact.coverage import Coverage, Written, coverage, total
from busway_reconcile.compact.records import RECORDS, WRITE_OPTIONS, CompactionFailed, read_records
from busway_reconcile.compact.tap_matching import match_taps
from busway_reconcile.journal import schema
from busway_reconcile.read.files import (
    JournalFile,
    content_problems,
    copy_problems,
    empty_files,
    find_copies,
    hour_in,
)
from busway_reconcile.session import fit
from busway_reconcile.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def write_attempt(
    spark: SparkSession,
    storage: Storage,
    files: Sequence[JournalFile],
    attempt: str,
    *,
    among: Sequence[JournalFile],
) -> Written:
    """
    Write the records of *files* below *attempt*/records, each raw file read once.

    Shape:   copies of files in *among* are not read.
    Raises:  CompactionFailed if there are fewer or more records than were read.
    """
    copied = find_copies(storage, files, among) if files else {}
    wanted = [file for file in files if file.file.size and file.file.path not in copied]
    problems = [*empty_files(files), *copy_problems(files, copied)]
    places = (attempt, *(file.file.path for file in wanted[:1]))
    if str(spark.sparkContext.master).startswith("local") and all(map(storage.is_local, places)):
        from busway_reconcile.compact.local import write_local  # noqa: PLC0415 - the driver of a cluster may lack pyarrow

        written = write_local(wanted, _records(attempt), spark.sparkContext.defaultParallelism)
    else:
        fit(spark, sum(file.file.size for file in wanted))
        written = write_by_workers(spark, storage, wanted, attempt)
    covered = written.coverage
    kept = sum(total(rows, "n") for rows in covered.values())
    if kept != written.records:
        raise CompactionFailed(f"kept {kept} records, expected {written.records} as they were read")
    if any(total(rows, "unmatched") for rows in covered.values()):
        covered = _match(spark, storage, attempt, covered)
    return Written(written.records, covered, [*problems, *written.problems])


def attempted_records(attempt: str, hour: str) -> str:
    """Return the folder below *attempt* that has the records of *hour*."""
    return f"{_records(attempt)}/landed={hour}"


def _records(attempt: str) -> str:
    return f"{attempt}/{RECORDS}"


def write_by_workers(spark: SparkSession, storage: Storage, files: Sequence[JournalFile], attempt: str) -> Written:
    """Write the records of *files* below *attempt*/records by Spark's workers."""
    if not files:
        return Written(0, {}, [])
    lines, counted = f"{attempt}/lines", Observation()
    is_record = F.col("trouble").isNull()
    read = read_by_workers(spark, [file.file.path for file in files])
    marked = read.observe(counted, F.count_if(is_record).alias("records")).withColumn("is_record", is_record)
    marked.write.options(**WRITE_OPTIONS).partitionBy("is_record", "landed").mode("overwrite").parquet(lines)
    troubles: dict[str, dict[str, int]] = {}
    if storage.exists(f"{lines}/is_record=false"):
        for row in spark.read.parquet(f"{lines}/is_record=false").select("path", "trouble", "count").collect():
            troubles.setdefault(row["path"], {})[row["trouble"]] = row["count"]
    if storage.exists(f"{lines}/is_record=true"):
        storage.move(f"{lines}/is_record=true", _records(attempt))
    problems = [problem for file in files for problem in content_problems(file, troubles.get(file.file.path, {}))]
    covered = _covered(spark, attempt, {file.hour for file in files})
    return Written(int(counted.get.get("records") or 0), covered, problems)


def read_by_workers(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """
    Return the records of the files at *paths*, and a row for each trouble of a file.

    Shape:   schema.compacted(); `path`, `trouble` and its `count`, null for a record.
    """
    shape = schema.compacted().add("path", "string").add("trouble", "string").add("count", "long")
    files = spark.read.format("binaryFile").load(list(paths)).select("path", "content")

    def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa  # noqa: PLC0415 - this runs on a worker, and the driver may lack it

        from busway_reconcile.read.records import COMPACTED, records_of  # noqa: PLC0415 - likewise

        added = [("landed", pa.string()), ("path", pa.string()), ("trouble", pa.string()), ("count", pa.int64())]
        whole = pa.schema([*COMPACTED, *added])
        for batch in batches:
            for address, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                # Spark encodes addresses as in a URL, which changes some task names.
                path, troubles = unquote(address), dict[str, int]()
                hour = hour_in(path)
                for table in records_of(content, troubles):
                    count = table.num_rows
                    more = [pa.array([hour] * count, pa.string()), *(pa.nulls(count, kind) for _, kind in added[1:])]
                    yield from pa.table([*table.columns, *more], schema=whole).combine_chunks().to_batches()
                rows = [
                    {"landed": hour, "path": path, "trouble": text, "count": count} for text, count in troubles.items()
                ]
                yield from pa.Table.from_pylist(rows, schema=whole).to_batches()

    return files.mapInArrow(read, shape)


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
