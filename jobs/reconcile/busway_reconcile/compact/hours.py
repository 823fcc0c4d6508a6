"""
Closed hours of raw journals as Parquet, so that a run need not parse them again.

An hour is compacted once its marker exists: a JSON file that names the raw files with their sizes and modification
times, and has the coverage of the hour. Records are written to an attempt folder, counted there, and then renamed;
after a crash the hour has no marker, and the next run compacts it again. Raw files are never changed; `delete_raw`
may delete those that `deletable_raw` has compared with the compacted records.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from busway_reconcile.compact.attempt import attempted_records, read_by_workers, write_attempt
from busway_reconcile.compact.coverage import coverage, total
from busway_reconcile.compact.records import RECORDS, CompactionFailed, read_records, verify_content
from busway_reconcile.journal import schema
from busway_reconcile.journal.problems import Problem
from busway_reconcile.read.files import JournalFile, below_journal, by_hour, hour_in, journal_files
from busway_reconcile.storage import Storage, StoredFile

VERSION = 6
"""Version of a marker: those before have no coverage, or less of it."""

_ABANDONED_AFTER = timedelta(days=1)
"""An attempt without a write for this long was killed."""


class Hour(NamedTuple):
    """A compacted hour: its raw files, its number of records, its problems, and its rows of COVERAGE."""

    hour: str
    files: tuple[StoredFile, ...]
    records: int
    problems: tuple[Problem, ...]
    made: str
    coverage: tuple[dict[str, Any], ...] = ()
    version: int = VERSION


def compact_hours(
    spark: SparkSession,
    storage: Storage,
    files: Sequence[JournalFile],
    folder: str,
    *,
    now: datetime,
    hours: Iterable[str],
    frozen: Mapping[str, Collection[StoredFile]] | None = None,
) -> dict[str, Hour]:
    """
    Compact the *hours* that are not compacted yet or whose raw files have changed since; return all of *hours*.

    An hour with deleted raw files stays as it is, even if other files came into it later.
    Shape:   *frozen* has the files that an hour must consist of, whatever other files exist now.
    Raises:  CompactionFailed, also if one of these files no longer exists.
    """
    raw = by_hour(files)
    found: dict[str, Hour] = {}
    missing: dict[str, list[JournalFile]] = {}
    for hour in sorted(set(hours)):
        made = _read_marker(storage, folder, hour)
        present = {file.state: file for file in raw.get(hour, [])}
        paths = {file.path for file in present}
        gone = set() if made is None else {file for file in made.files if file.path not in paths}
        wanted = {*frozen[hour]} if frozen is not None and hour in frozen else present.keys() | gone
        if made is not None and wanted == {*made.files}:
            found[hour] = made
        elif not gone and wanted <= present.keys():
            missing[hour] = [present[file] for file in sorted(wanted)]
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
        found |= _compact(spark, storage, missing, folder, now, among=files)
    return {hour: found[hour] for hour in sorted(found)}


def update_coverage(spark: SparkSession, storage: Storage, folder: str, hours: Iterable[Hour]) -> dict[str, Hour]:
    """Return *hours*; the markers of those that an earlier version compacted get their coverage, from the records."""
    found = {hour.hour: hour for hour in hours}
    old = [hour for hour in found.values() if hour.version != VERSION]
    kept = read_records(spark, f"{folder}/{RECORDS}", (hour.hour for hour in old)) if old else None
    covered = {} if kept is None else coverage(kept)
    for hour in old:
        found[hour.hour] = hour._replace(version=VERSION, coverage=tuple(covered.get(hour.hour, ())))
        _write_marker(storage, folder, found[hour.hour])
    return found


def deletable_raw(spark: SparkSession, journal: str, folder: str, hours: Iterable[str]) -> Iterator[JournalFile]:
    """
    Yield the raw files of *hours* in *journal* that have not changed since compaction, hour by hour.

    An hour that is not compacted, or has problems, has none.
    Raises:  CompactionFailed if the compacted records of an hour do not have the content of its raw files.
    """
    storage = Storage(spark)
    raw, _ = journal_files(storage.files(journal))
    for hour in hours:
        made = _read_marker(storage, folder, hour)
        if made is None or made.problems:
            continue
        unchanged = [file for file in raw if file.hour == hour and file.state in {*made.files}]
        _verify(spark, unchanged, folder, hour)
        yield from unchanged


def _verify(spark: SparkSession, files: Sequence[JournalFile], folder: str, hour: str) -> None:
    paths = [file.file.path for file in files if file.file.size]
    if paths:
        kept = read_records(spark, f"{folder}/{RECORDS}", [hour])
        empty = spark.createDataFrame([], schema.compacted())
        verify_content(read_by_workers(spark, paths).where("trouble is null"), empty if kept is None else kept)


def _compact(
    spark: SparkSession,
    storage: Storage,
    raw: dict[str, list[JournalFile]],
    folder: str,
    now: datetime,
    *,
    among: Sequence[JournalFile],
) -> dict[str, Hour]:
    files = [file for hour in raw.values() for file in hour]
    attempt = f"{folder}/attempt-{uuid.uuid4().hex}"
    try:
        written = write_attempt(spark, storage, files, attempt, among=among)
        made = {
            hour: Hour(
                hour,
                tuple(file.state for file in inputs),
                total(written.coverage.get(hour, ()), "n"),
                tuple(problem for problem in written.problems if hour_in(problem.where) == hour),
                now.isoformat(),
                tuple(written.coverage.get(hour, ())),
            )
            for hour, inputs in raw.items()
        }
        for hour in made.values():
            _commit(storage, attempted_records(attempt, hour.hour), folder, hour)
    finally:
        storage.delete(attempt)
    return made


def _delete_abandoned(storage: Storage, folder: str, now: datetime) -> None:
    for name in storage.folders(folder):
        if name.startswith("attempt-"):
            changed = [file.modified for file in storage.files(f"{folder}/{name}")]
            if changed and max(changed) < (now - _ABANDONED_AFTER).timestamp() * 1000:
                storage.delete(f"{folder}/{name}")


def _commit(storage: Storage, records: str, folder: str, hour: Hour) -> None:
    storage.delete(_marker_path(folder, hour.hour))
    target = f"{folder}/{RECORDS}/landed={hour.hour}"
    storage.delete(target)
    if storage.exists(records):
        storage.move(records, target)
    _write_marker(storage, folder, hour)


def compacted_hours(storage: Storage, folder: str) -> set[str]:
    """Return the hours that are compacted in *folder*."""
    names = (file.path.rpartition("/")[2] for file in storage.files(f"{folder}/hours"))
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


def _read_marker(storage: Storage, folder: str, hour: str) -> Hour | None:
    """Return the marker of *hour*, or None if the hour is not compacted."""
    path = _marker_path(folder, hour)
    if not storage.exists(path):
        return None
    values = json.loads(storage.read(path))
    return Hour(
        values["hour"],
        tuple(StoredFile(below_journal(path), size, modified) for path, size, modified in values["files"]),
        values["records"],
        tuple(Problem.from_list(each) for each in values["problems"]),
        values["made"],
        tuple(values.get("coverage", ())),
        values.get("version", 1),
    )


def _write_marker(storage: Storage, folder: str, hour: Hour) -> None:
    """Mark *hour* as compacted in *folder*."""
    storage.write(_marker_path(folder, hour.hour), json.dumps(hour._asdict(), indent=1))


def _marker_path(folder: str, hour: str) -> str:
    return f"{folder}/hours/{hour}.json"
