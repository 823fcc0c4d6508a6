"""
Closed hours of raw journals as Parquet, so that a run need not parse them again.

An hour is compacted once its marker exists: a JSON file that names the raw files with their sizes and modification
times, and has the coverage of the hour. Records are written to an attempt folder, counted there, and then renamed;
after a crash the hour has no marker, and the next run compacts it again. Raw files are never changed; `delete_raw`
deletes only those whose content it has compared with the compacted records.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.compact.coverage import coverage, total
from jobs.reconcile.compact.markers import VERSION, Hour, delete_marker, read_marker, write_marker
from jobs.reconcile.compact.records import RECORDS, TROUBLES, WRITE_OPTIONS, compact_records
from jobs.reconcile.compact.tables import read_records
from jobs.reconcile.compact.tap_matching import match_taps
from jobs.reconcile.compact.verification import CompactionFailed, verify_content
from jobs.reconcile.journal import schema
from jobs.reconcile.journal.problems import Problem
from jobs.reconcile.read.copies import copy_problems, find_copies
from jobs.reconcile.read.files import JournalFile, by_hour, hour_in, journal_files
from jobs.reconcile.read.lines import empty_files, torn_files
from jobs.reconcile.read.records import parse_files, record_problems
from jobs.reconcile.storage import Storage, StoredFile

_ABANDONED_AFTER = timedelta(days=1)
"""An attempt without a write for this long was killed."""
_OLD_TABLES = ("loose", "digests", "sessions", "behind", "lags", "coverage")
"""Tables that earlier versions kept beside the records."""

ToRecords = Callable[[DataFrame], DataFrame]


class _Written(NamedTuple):
    """The number of records that were read, and the problems of the files that they were read from."""

    read: int
    problems: list[Problem]


def compact_hours(
    spark: SparkSession,
    files: Sequence[JournalFile],
    folder: str,
    *,
    now: datetime,
    hours: Iterable[str],
    frozen: Mapping[str, Collection[StoredFile]] | None = None,
    to_records: ToRecords = compact_records,
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
        found |= _compact(spark, storage, missing, folder, now, among=files, to_records=to_records)
    return {hour: found[hour] for hour in sorted(found)}


def update_coverage(spark: SparkSession, folder: str, hours: Iterable[Hour]) -> dict[str, Hour]:
    """Return *hours*; the markers of those that an earlier version compacted get their coverage, from the records."""
    storage = Storage(spark)
    found = {each.hour: each for each in hours}
    old = [each for each in found.values() if each.version != VERSION]
    kept = read_records(spark, f"{folder}/{RECORDS}", (each.hour for each in old)) if old else None
    covered = {} if kept is None else coverage(kept)
    for each in old:
        found[each.hour] = each._replace(version=VERSION, coverage=tuple(covered.get(each.hour, ())))
        write_marker(storage, folder, found[each.hour])
        for table in _OLD_TABLES:
            storage.delete(f"{folder}/{table}/landed={each.hour}")
    return found


def delete_raw(spark: SparkSession, journal: str, folder: str, hours: Iterable[str]) -> list[str]:
    """
    Delete the raw files of *hours* in *journal* that have not changed since compaction; return their paths.

    Raises CompactionFailed if the compacted records of an hour do not have the content of its raw files.
    """
    storage = Storage(spark)
    raw, _ = journal_files(storage.files(journal))
    deleted = []
    for hour in hours:
        made = read_marker(storage, folder, hour)
        if made is None or made.problems:
            continue
        unchanged = [each for each in raw if each.hour == hour and each.state in {*made.files}]
        _verify(spark, unchanged, folder, hour)
        for each in unchanged:
            storage.delete(each.file.path)
            deleted.append(each.file.path)
    return deleted


def _verify(spark: SparkSession, files: Sequence[JournalFile], folder: str, hour: str) -> None:
    parsed = parse_files(spark, [each.file.path for each in files if each.file.size], [])
    kept = read_records(spark, f"{folder}/{RECORDS}", [hour])
    empty = spark.createDataFrame([], schema.compacted())
    verify_content(parsed.where("trouble is null"), empty if kept is None else kept)


def _compact(
    spark: SparkSession,
    storage: Storage,
    raw: dict[str, list[JournalFile]],
    folder: str,
    now: datetime,
    *,
    among: Sequence[JournalFile],
    to_records: ToRecords,
) -> dict[str, Hour]:
    files = [each for hour in raw.values() for each in hour]
    attempt = f"{folder}/attempt-{uuid.uuid4().hex}"
    try:
        written = _write_records(spark, storage, files, attempt, among=among, to_records=to_records)
        covered = _covered(spark, attempt, raw)
        kept = sum(total(rows, "n") for rows in covered.values())
        if kept != written.read:
            raise CompactionFailed(f"kept {kept} records, expected {written.read} as they were read")
        if any(total(rows, "unmatched") for rows in covered.values()):
            covered = _match(spark, storage, attempt, raw)
        made = {
            hour: Hour(
                hour,
                tuple(each.state for each in inputs),
                total(covered.get(hour, ()), "n"),
                tuple(each for each in written.problems if hour_in(each.where) == hour),
                now.isoformat(),
                tuple(covered.get(hour, ())),
            )
            for hour, inputs in raw.items()
        }
        for hour in made.values():
            _commit(storage, f"{attempt}/kind={RECORDS}", folder, hour)
    finally:
        storage.delete(attempt)
    return made


def _write_records(
    spark: SparkSession,
    storage: Storage,
    files: Sequence[JournalFile],
    attempt: str,
    *,
    among: Sequence[JournalFile],
    to_records: ToRecords,
) -> _Written:
    """Write the records of *files* in one pass; if a file turns out to be torn, find all torn ones and begin again."""
    copied = find_copies(storage, files, among) if files else {}
    wanted = [each.file.path for each in files if each.file.size and each.file.path not in copied]
    if not wanted:
        return _Written(0, [*empty_files(files), *copy_problems(files, copied)])
    torn: dict[str, Problem] = {}
    try:
        read = _write_once(spark, wanted, [], attempt, to_records)
    except (PySparkException, Py4JJavaError):  # Spark 4 and 3.5 wrap a failed task differently
        torn = torn_files(spark, [each for each in files if each.file.path in wanted])
        if not torn:
            raise
        storage.delete(attempt)
        read = _write_once(spark, [path for path in wanted if path not in torn], list(torn), attempt, to_records)
    problems = [*empty_files(files), *torn.values(), *copy_problems(files, copied)]
    if storage.exists(f"{attempt}/kind={TROUBLES}"):
        rows = spark.read.parquet(f"{attempt}/kind={TROUBLES}").groupBy("path", "trouble").count().collect()
        problems += record_problems((row.asDict() for row in rows), files)
    return _Written(read, problems)


def _write_once(
    spark: SparkSession, whole: Sequence[str], torn: Sequence[str], attempt: str, to_records: ToRecords
) -> int:
    """Write parsed lines and return the number of records among them."""
    counted = Observation()
    parsed = parse_files(spark, whole, torn).observe(counted, F.count_if(F.col("trouble").isNull()).alias("records"))
    to_records(parsed).write.options(**WRITE_OPTIONS).partitionBy("kind", "landed").mode("overwrite").parquet(attempt)
    return int(counted.get.get("records") or 0)


def _covered(spark: SparkSession, attempt: str, hours: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    kept = read_records(spark, f"{attempt}/kind={RECORDS}", hours)
    return {} if kept is None else coverage(kept)


def _match(
    spark: SparkSession, storage: Storage, attempt: str, hours: Iterable[str]
) -> dict[str, list[dict[str, Any]]]:
    """Give the records of taps the numbers of their messages; return the coverage of the result."""
    storage.move(f"{attempt}/kind={RECORDS}", f"{attempt}/unmatched")
    unmatched = read_records(spark, f"{attempt}/unmatched", hours)
    if unmatched is not None:
        match_taps(unmatched).write.options(**WRITE_OPTIONS).partitionBy("landed").mode("overwrite").parquet(
            f"{attempt}/kind={RECORDS}"
        )
    return _covered(spark, attempt, hours)


def _delete_abandoned(storage: Storage, folder: str, now: datetime) -> None:
    for name in storage.folders(folder):
        if name.startswith("attempt-"):
            changed = [each.modified for each in storage.files(f"{folder}/{name}")]
            if changed and max(changed) < (now - _ABANDONED_AFTER).timestamp() * 1000:
                storage.delete(f"{folder}/{name}")


def _commit(storage: Storage, attempt: str, folder: str, hour: Hour) -> None:
    delete_marker(storage, folder, hour.hour)
    target = f"{folder}/{RECORDS}/landed={hour.hour}"
    storage.delete(target)
    if storage.exists(f"{attempt}/landed={hour.hour}"):
        storage.move(f"{attempt}/landed={hour.hour}", target)
    write_marker(storage, folder, hour)
