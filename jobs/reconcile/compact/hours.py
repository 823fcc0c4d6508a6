"""
Closed hours of raw journals as Parquet: their records and the index of them.

An hour is compacted once its marker exists: a JSON file that names the raw files with their sizes and modification
times. Tables are written to an attempt folder, read again and verified, and then renamed; after a crash the hour has no
marker, and the next run compacts it again. Raw files are never changed; `delete_raw` deletes only verified ones.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.compact import index
from jobs.reconcile.compact.markers import Hour, delete_marker, read_marker, write_marker
from jobs.reconcile.compact.records import compact_records
from jobs.reconcile.compact.tables import load, read_records
from jobs.reconcile.compact.tap_matching import match_taps
from jobs.reconcile.compact.verification import COUNTED, CompactionFailed, verify_index, verify_records
from jobs.reconcile.journal.columns import needs_match
from jobs.reconcile.read.copies import copy_problems, find_copies
from jobs.reconcile.read.files import JournalFile, by_hour, hour_in
from jobs.reconcile.read.lines import read_lines
from jobs.reconcile.read.records import parse_records, record_problems
from jobs.reconcile.storage import Storage, StoredFile

_ROWS_PER_FILE = 2_000_000
_ABANDONED_AFTER = timedelta(days=1)
"""An attempt without a write for this long was killed."""
_NEIGHBOURS = 65_536  # sequence numbers that are kept in one file


Index = Callable[[DataFrame], dict[str, DataFrame]]


def compact_hours(
    spark: SparkSession,
    files: Sequence[JournalFile],
    folder: str,
    *,
    now: datetime,
    hours: Iterable[str],
    frozen: Mapping[str, Collection[StoredFile]] | None = None,
    to_records: Callable[[DataFrame], DataFrame] = compact_records,
    to_index: Index = index.tables,
) -> dict[str, Hour]:
    """
    Compact the *hours* that are not compacted yet or whose raw files have changed since; return all of *hours*.

    An hour with deleted raw files stays as it is, even if other files came into it later.
    Shape:   *frozen* has the files that an hour must consist of, whatever other files exist now.
    Raises:  CompactionFailed, also if one of these files no longer exists.
    """
    storage = Storage(spark)
    raw = by_hour(files)
    found: dict[str, Hour] = {}
    missing: dict[str, list[JournalFile]] = {}
    for hour in sorted(set(hours)):
        made = read_marker(storage, folder, hour)
        present = {each.state: each for each in raw.get(hour, [])}
        paths = {each.path for each in present}
        gone = set() if made is None else {each for each in made.files if each.path not in paths}
        wanted = {*frozen[hour]} if frozen is not None and hour in frozen else present.keys() | gone
        if made is not None and wanted == {*made.files}:
            found[hour] = made
        elif not gone and wanted <= present.keys():
            missing[hour] = [present[each] for each in sorted(wanted)]
        elif made is not None and (frozen is None or hour not in frozen):
            found[hour] = made
        else:
            deleted = min((wanted | gone) - present.keys()).path
            raise CompactionFailed(
                f"{hour}: {deleted} has changed or is missing since the first time of this run, and the hour is not "
                "compacted from the files of that time; repeat the run with --refreeze"
            )
    if missing:
        _delete_abandoned(storage, folder, now)
        found |= _compact(spark, storage, missing, folder, now, among=files, to_records=to_records, to_index=to_index)
    return {hour: found[hour] for hour in sorted(found)}


def update_index(spark: SparkSession, folder: str, hours: Iterable[Hour]) -> None:
    """Write the index of those *hours* again that have another version of it."""
    storage = Storage(spark)
    old = [each for each in hours if each.version != index.VERSION]
    kept = load(spark, folder, "records", [each.hour for each in old])
    attempt = f"{folder}/attempt-{uuid.uuid4().hex}"
    if kept is not None:
        _write_index(kept, attempt, index.tables)
    # The marker stays meanwhile: without it and the raw files, the hour would be lost.
    for each in old:
        _replace(storage, attempt, folder, each.hour, index.TABLES[1:])
        write_marker(storage, folder, each._replace(version=index.VERSION))
    storage.delete(attempt)


def adopt(spark: SparkSession, folder: str, hours: Iterable[str], *, now: datetime) -> None:
    """Index and mark *hours* whose compacted records another tool wrote to *folder*."""
    storage = Storage(spark)
    _write_index(read_records(spark, f"{folder}/records"), folder, index.tables)
    for hour in hours:
        write_marker(storage, folder, Hour(hour, (), 0, 0, (), now.isoformat()))


def delete_raw(spark: SparkSession, journal: str, folder: str, hours: Iterable[str]) -> list[str]:
    """Delete the raw files of *hours* in *journal* that have not changed since compaction; return their paths."""
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


def _compact(
    spark: SparkSession,
    storage: Storage,
    raw: dict[str, list[JournalFile]],
    folder: str,
    now: datetime,
    *,
    among: Sequence[JournalFile],
    to_records: Callable[[DataFrame], DataFrame],
    to_index: Index,
) -> dict[str, Hour]:
    files = [each for hour in raw.values() for each in hour]
    if not files:
        empty = {hour: Hour(hour, (), 0, 0, (), now.isoformat()) for hour in raw}
        for each in empty.values():
            _commit(storage, f"{folder}/attempt-none", folder, each)
        return empty
    copied = find_copies(spark, files, among)
    lines = read_lines(spark, [each for each in files if each.file.path not in copied])
    parsed = parse_records(lines.frame)
    problems = [*lines.problems, *record_problems(parsed, files), *copy_problems(files, copied)]
    attempt = f"{folder}/attempt-{uuid.uuid4().hex}"
    try:
        good = parsed.where("trouble is null").drop("path", "trouble")
        partitions = max(sum(lines.counts.values()) // _ROWS_PER_FILE, 1)
        _write(_sorted(to_records(good), partitions), attempt, "records")
        kept = read_records(spark, f"{attempt}/records")
        counts = verify_records(good, kept)
        if not kept.where(needs_match()).isEmpty():
            storage.move(f"{attempt}/records", f"{attempt}/unmatched")
            _write(_sorted(match_taps(read_records(spark, f"{attempt}/unmatched")), partitions), attempt, "records")
            kept = read_records(spark, f"{attempt}/records")
        _write_index(kept, attempt, to_index)
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


def _write_index(kept: DataFrame, folder: str, to_index: Index) -> None:
    for name, table in to_index(kept).items():
        _write(table, folder, name)


def _sorted(frame: DataFrame, partitions: int) -> DataFrame:
    neighbours = F.floor(F.col("src_seq") / _NEIGHBOURS)
    return frame.repartition(partitions, "landed", "task", "src_part", neighbours).sortWithinPartitions(
        "landed", "task", "src_part", "src_seq", "role", "observer", "batch_id"
    )


def _write(frame: DataFrame, folder: str, table: str) -> None:
    frame.write.partitionBy("landed").mode("overwrite").parquet(f"{folder}/{table}")


def _delete_abandoned(storage: Storage, folder: str, now: datetime) -> None:
    for name in storage.folders(folder):
        if name.startswith("attempt-"):
            changed = [each.modified for each in storage.files(f"{folder}/{name}")]
            if changed and max(changed) < (now - _ABANDONED_AFTER).timestamp() * 1000:
                storage.delete(f"{folder}/{name}")


def _commit(storage: Storage, attempt: str, folder: str, hour: Hour) -> None:
    delete_marker(storage, folder, hour.hour)
    _replace(storage, attempt, folder, hour.hour, index.TABLES)
    write_marker(storage, folder, hour)


def _replace(storage: Storage, attempt: str, folder: str, hour: str, tables: Iterable[str]) -> None:
    for table in tables:
        target = f"{folder}/{table}/landed={hour}"
        storage.delete(target)
        if storage.exists(f"{attempt}/{table}/landed={hour}"):
            storage.move(f"{attempt}/{table}/landed={hour}", target)
