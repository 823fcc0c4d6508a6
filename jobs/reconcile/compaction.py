"""
Closed hours of raw journals as Parquet, with what `index` makes of them.

An hour is there when its marker is: a JSON file that names the raw files it was made of with their sizes and times of
change. Tables are written under another name, read again and compared, and renamed; a crash leaves an hour without a
marker, which the next run makes again. Raw files are never touched, but by `delete_raw`, and then only verified ones.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import index, schema
from jobs.reconcile.filling import compacted
from jobs.reconcile.inputs import JournalFile, Problem, below_journal, by_hour, hour_in
from jobs.reconcile.placement import placed, unplaced
from jobs.reconcile.raw import copies, read_lines, records, troubles
from jobs.reconcile.storage import Storage, StoredFile
from jobs.reconcile.verification import COUNTED, CompactionFailed, verified, verify_index

_ROWS_PER_FILE = 2_000_000
_ATTEMPT = timedelta(days=1)  # what nobody has written to for so long was given up
_NEIGHBOURS = 65_536  # sequence numbers that are kept in one file


class Hour(NamedTuple):
    """A compacted hour: the raw files it was made of, how many records it has, and what was wrong."""

    hour: str
    files: tuple[StoredFile, ...]
    records: int
    repeats: int
    problems: tuple[Problem, ...]
    made: str
    version: int = index.VERSION
    """Of the index."""


def compact(
    spark: SparkSession,
    files: Sequence[JournalFile],
    folder: str,
    *,
    now: datetime,
    hours: Iterable[str],
    frozen: Mapping[str, Collection[StoredFile]] | None = None,
) -> dict[str, Hour]:
    """
    Compact those of *hours* that are not yet or whose raw files have changed since; return all of *hours*.

    An hour whose raw files have been deleted, or some of them, stays as it was made of them, whatever has come since.
    Shape:   *frozen* has the files that an hour has to be of, whatever else is there by now.
    Raises:  CompactionFailed, also where those are not there any more.
    """
    storage = Storage(spark)
    raw = by_hour(files)
    there: dict[str, Hour] = {}
    missing: dict[str, list[JournalFile]] = {}
    for hour in sorted(set(hours)):
        made = read_marker(storage, folder, hour)
        present = {each.state: each for each in raw.get(hour, [])}
        paths = {each.path for each in present}
        gone = set() if made is None else {each for each in made.files if each.path not in paths}
        wanted = {*frozen[hour]} if frozen is not None and hour in frozen else present.keys() | gone
        if made is not None and wanted == {*made.files}:
            there[hour] = made
        elif not gone and wanted <= present.keys():
            missing[hour] = [present[each] for each in sorted(wanted)]
        elif made is not None and (frozen is None or hour not in frozen):
            there[hour] = made
        else:
            lost = min((wanted | gone) - present.keys()).path
            raise CompactionFailed(
                f"{hour}: {lost} is not there as this run saw it first, and nothing compact is of just the files that "
                "it saw; repeat the run with refreeze"
            )
    if missing:
        _clear(storage, folder, now)
        there |= _make(spark, storage, missing, folder, now, among=files)
    return {hour: there[hour] for hour in sorted(there)}


def compacted_hours(storage: Storage, folder: str) -> set[str]:
    """Return the hours that are compacted in *folder*."""
    names = (each.path.rpartition("/")[2] for each in storage.files(f"{folder}/hours"))
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


def index_again(spark: SparkSession, folder: str, hours: Iterable[Hour]) -> None:
    """Make the index of those of *hours* again that have one of another version."""
    storage = Storage(spark)
    old = [each for each in hours if each.version != index.VERSION]
    kept = load(spark, folder, "records", [each.hour for each in old])
    attempt = f"{folder}/attempt-{uuid.uuid4().hex}"
    if kept is not None:
        write_index(kept, attempt)
    # The marker stays meanwhile: without it there would be no hour, if its raw files are gone.
    for each in old:
        _replace(storage, attempt, folder, each.hour, index.TABLES[1:])
        _mark(storage, folder, each._replace(version=index.VERSION))
    storage.delete(attempt)


def adopt(spark: SparkSession, folder: str, hours: Iterable[str], *, now: datetime) -> None:
    """Take over records of *hours* that lie compacted in *folder* already, as another tool has put them there."""
    storage = Storage(spark)
    write_index(read_records(spark, f"{folder}/records"), folder)
    for hour in hours:
        _mark(storage, folder, Hour(hour, (), 0, 0, (), now.isoformat()))


def read_records(spark: SparkSession, folder: str) -> DataFrame:
    """Return the compacted records in *folder*, of all hours."""
    return spark.read.option("basePath", folder).schema(schema.compacted()).parquet(folder)


def read_marker(storage: Storage, folder: str, hour: str) -> Hour | None:
    """Return what the marker of *hour* says, None where the hour is not compacted."""
    path = _marker(folder, hour)
    if not storage.exists(path):
        return None
    told = json.loads(storage.read(path))
    return Hour(
        told["hour"],
        tuple(StoredFile(below_journal(path), size, modified) for path, size, modified in told["files"]),
        told["records"],
        told["repeats"],
        tuple(
            Problem(kind, where, text, task, role, tuple(hours))
            for kind, where, text, task, role, hours in told["problems"]
        ),
        told["made"],
        told.get("version", 1),
    )


def load(spark: SparkSession, folder: str, table: str, hours: Iterable[str]) -> DataFrame | None:
    """Return *table* for those of *hours* that have any of it, None if none has."""
    storage = Storage(spark)
    paths = [path for hour in sorted(set(hours)) if storage.exists(path := f"{folder}/{table}/landed={hour}")]
    if not paths:
        return None
    reader = spark.read.option("basePath", f"{folder}/{table}")
    return (reader.schema(schema.compacted()) if table in ("records", "loose") else reader).parquet(*paths)


def delete_raw(spark: SparkSession, journal: str, folder: str, hours: Iterable[str]) -> list[str]:
    """Delete the raw files of *journal* that *hours* were made of and that are as then; return their paths."""
    storage = Storage(spark)
    deleted = []
    for hour in hours:
        made = read_marker(storage, folder, hour)
        if made is None or made.problems:
            continue
        for known in made.files:
            path = f"{storage.absolute(journal)}/{known.path}"
            parent = path.rpartition("/")[0]
            if any(file == known._replace(path=path) for file in storage.files(parent)):
                storage.delete(path)
                deleted.append(path)
    return deleted


def _make(
    spark: SparkSession,
    storage: Storage,
    raw: dict[str, list[JournalFile]],
    folder: str,
    now: datetime,
    *,
    among: Sequence[JournalFile],
) -> dict[str, Hour]:
    files = [each for hour in raw.values() for each in hour]
    if not files:
        empty = {hour: Hour(hour, (), 0, 0, (), now.isoformat()) for hour in raw}
        for nothing in empty.values():
            _commit(storage, f"{folder}/attempt-none", folder, nothing)
        return empty
    copied = copies(spark, files, among)
    lines = read_lines(spark, [each for each in files if each.file.path not in copied])
    found = records(lines.frame)
    problems = [*lines.problems, *troubles(found, files), *_named(files, copied)]
    attempt = f"{folder}/attempt-{uuid.uuid4().hex}"
    try:
        good = found.where("trouble is null").drop("path", "trouble")
        partitions = max(sum(lines.counts.values()) // _ROWS_PER_FILE, 1)
        _write(_sorted(compacted(good), partitions), attempt, "records")
        kept = read_records(spark, f"{attempt}/records")
        counts = verified(good, kept)
        if not kept.where(unplaced()).isEmpty():
            storage.move(f"{attempt}/records", f"{attempt}/unplaced")
            _write(_sorted(placed(read_records(spark, f"{attempt}/unplaced")), partitions), attempt, "records")
            kept = read_records(spark, f"{attempt}/records")
        write_index(kept, attempt)
        indexed = {name: load(spark, attempt, name, raw) for name in COUNTED}
        verify_index(kept, indexed, sum(once for _, once in counts.values()))
        made = {
            hour: Hour(
                hour,
                tuple(each.state for each in inputs),
                counts.get(hour, (0, 0))[1],
                counts.get(hour, (0, 0))[0] - counts.get(hour, (0, 0))[1],
                tuple(each for each in problems if hour_in(each.where) == hour),
                now.isoformat(),
            )
            for hour, inputs in raw.items()
        }
        for hour in made.values():
            _commit(storage, attempt, folder, hour)
    finally:
        storage.delete(attempt)
    return made


def _named(files: Sequence[JournalFile], copied: Mapping[str, JournalFile]) -> list[Problem]:
    """Return a problem for each of *files* that is *copied*; nothing is missing for want of it."""
    return [
        Problem("duplicated-file", each.file.path, f"a copy of {original.state.path}; read once", each.task, each.role)
        for each in files
        if (original := copied.get(each.file.path)) is not None
    ]


def write_index(kept: DataFrame, folder: str) -> None:
    """Write the tables of `index` for the compacted records *kept*."""
    for name, table in index.tables(kept).items():
        _write(table, folder, name)


def _sorted(frame: DataFrame, partitions: int) -> DataFrame:
    neighbours = F.floor(F.col("src_seq") / _NEIGHBOURS)
    return frame.repartition(partitions, "landed", "task", "src_part", neighbours).sortWithinPartitions(
        "landed", "task", "src_part", "src_seq", "role", "observer", "batch_id"
    )


def _write(frame: DataFrame, folder: str, table: str) -> None:
    frame.write.partitionBy("landed").mode("overwrite").parquet(f"{folder}/{table}")


def _clear(storage: Storage, folder: str, now: datetime) -> None:
    """Delete what attempts have left that were killed."""
    for name in storage.folders(folder):
        if name.startswith("attempt-"):
            changed = [each.modified for each in storage.files(f"{folder}/{name}")]
            if changed and max(changed) < (now - _ATTEMPT).timestamp() * 1000:
                storage.delete(f"{folder}/{name}")


def _commit(storage: Storage, attempt: str, folder: str, hour: Hour) -> None:
    storage.delete(_marker(folder, hour.hour))
    _replace(storage, attempt, folder, hour.hour, index.TABLES)
    _mark(storage, folder, hour)


def _replace(storage: Storage, attempt: str, folder: str, hour: str, tables: Iterable[str]) -> None:
    for table in tables:
        target = f"{folder}/{table}/landed={hour}"
        storage.delete(target)
        if storage.exists(f"{attempt}/{table}/landed={hour}"):
            storage.move(f"{attempt}/{table}/landed={hour}", target)


def _mark(storage: Storage, folder: str, hour: Hour) -> None:
    storage.write(_marker(folder, hour.hour), json.dumps(hour._asdict(), indent=1))


def _marker(folder: str, hour: str) -> str:
    return f"{folder}/hours/{hour}.json"
