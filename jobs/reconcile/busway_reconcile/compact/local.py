"""Raw files on a local disk, compacted in threads of this process: no Spark job is started, no value becomes a row."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet

from busway_reconcile.compact.coverage import FINISHING, KEYS, MINUTE, Written, merged_coverage
from busway_reconcile.compact.records import DISTINCT, CompactionFailed
from busway_reconcile.journal.problems import Problem
from busway_reconcile.read.files import JournalFile, by_hour, content_problems
from busway_reconcile.read.records import COMPACTED, records_of

LOCAL = "file:"
"""What the address of a file on this machine begins with."""

_REPEATED = [
    f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
    for field in COMPACTED
    if field.name not in DISTINCT
]
"""The columns of Parquet that get a dictionary: those of compact.records."""

_ROWS = 200_000
"""Records in a row group: Spark reads the groups of a file in several tasks."""


def write_local(files: Sequence[JournalFile], folder: str, threads: int) -> Written:
    """
    Write the records of *files* below *folder*, as Spark partitions them.

    Raises CompactionFailed if a file of Parquet has not as many records as were read.
    """
    shares = [(hour, share) for hour, each in by_hour(files).items() for share in _shares(each, threads)]
    root = Path(folder.removeprefix(LOCAL))
    with ThreadPoolExecutor(threads) as pool:
        written = list(
            pool.map(
                lambda nth: _write(shares[nth][1], root / f"landed={shares[nth][0]}" / f"part-{nth}.parquet"),
                range(len(shares)),
            )
        )
    rows = defaultdict[str, list[dict[str, Any]]](list)
    for (hour, _), each in zip(shares, written, strict=True):
        rows[hour] += each.coverage[hour]
    found = {hour: merged_coverage(of_hour) for hour, of_hour in rows.items()}
    problems = [problem for each in written for problem in each.problems]
    return Written(sum(each.records for each in written), found, problems)


def _shares(files: Sequence[JournalFile], count: int) -> list[list[JournalFile]]:
    """Return *files* in up to *count* groups of about the same size."""
    shares: list[list[JournalFile]] = [[] for _ in range(count)]
    sizes = [0] * count
    for file in sorted(files, key=lambda file: (-file.file.size, file.file.path)):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(file)
        sizes[smallest] += file.file.size
    return [share for share in shares if share]


def _write(files: Sequence[JournalFile], path: Path) -> Written:
    """Write the records of *files*, all of one hour, to *path*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    problems: list[Problem] = []
    records = 0
    covered: list[dict[str, Any]] = []
    with parquet.ParquetWriter(path, COMPACTED, compression="zstd", use_dictionary=_REPEATED) as writer:
        for table in _batches(files, problems):
            records += table.num_rows
            covered = merged_coverage([*covered, *_coverage(table)])
            writer.write_table(table, row_group_size=_ROWS)
    kept = parquet.read_metadata(path).num_rows
    if kept != records:
        raise CompactionFailed(f"{path}: kept {kept} records, expected {records} as they were read")
    return Written(records, {files[0].hour: covered}, problems)


def _batches(files: Sequence[JournalFile], problems: list[Problem]) -> Iterator[pa.Table]:
    """Yield the records of *files*, about _ROWS at a time, and add to *problems* what is wrong with them."""
    waiting: list[pa.Table] = []
    rows = 0
    for file in files:
        troubles: dict[str, int] = {}
        for table in records_of(Path(file.file.path.removeprefix(LOCAL)).read_bytes(), troubles):
            waiting.append(table)
            rows += table.num_rows
            if rows >= _ROWS:
                yield pa.concat_tables(waiting)
                waiting, rows = [], 0
        problems += content_problems(file, troubles)
    if waiting:
        yield pa.concat_tables(waiting)


def _coverage(records: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of coverage of *records*, as compact.coverage does for those that Spark has read."""
    has_number, is_tap = compute.is_valid(records["src_seq"]), compute.equal(records["observer"], "tap")
    is_target = compute.equal(records["role"], "target")
    at_target = compute.and_(compute.and_(is_target, has_number), compute.is_null(records["src_part"]))
    at_source = compute.and_not(compute.invert(is_target), has_number)
    unmatched = compute.and_(is_tap, compute.or_(at_target, at_source))
    journal_time = records["journal_time"].cast(pa.int64())
    is_finished = compute.and_(
        compute.is_in(records["outcome"], pa.array(FINISHING)), compute.equal(records["observer"], "task")
    )
    added = {
        "minute": compute.if_else(is_finished, compute.divide(journal_time, MINUTE), None),
        "unnumbered": compute.or_(unmatched, compute.invert(has_number)).cast(pa.int64()),
        "unmatched": unmatched.cast(pa.int64()),
        "given_up": compute.is_valid(records["given_up_by"]).cast(pa.int64()),
        "handed_over": compute.fill_null(records["handed_over"], False),
        "journal_time": journal_time,
        "enqueued": records["enqueued_time"].cast(pa.int64()),
    }
    keyed = pa.table({**{name: records[name] for name in KEYS}, **added})
    grouped = keyed.group_by([*KEYS, "minute"], use_threads=False).aggregate(
        [
            ([], "count_all"),
            *((name, "sum") for name in ("unnumbered", "unmatched", "given_up")),
            ("handed_over", "any"),
            *(("journal_time", side) for side in ("min", "max")),
            ("enqueued", "max"),
        ]
    )
    names = {
        "count_all": "n",
        "journal_time_min": "first",
        "journal_time_max": "last",
        "handed_over_any": "handed_over",
        "enqueued_max": "last_enqueued",
    }
    names |= {f"{name}_sum": name for name in ("unnumbered", "unmatched", "given_up")}
    rows = [{names.get(name, name): value for name, value in row.items()} for row in grouped.to_pylist()]
    for row in rows:
        row["finished"] = [] if row["minute"] is None else sorted({row["first"], row["last"]})
    return rows
