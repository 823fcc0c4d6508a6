"""
Faultless files on a local disk, read and compacted by Arrow in threads of this process.

For few records no Spark job is started, and for many no value goes through rows. Arrow reads JSON more strictly than
Spark in most places, more leniently in a few. A file counts as faultless only if both would read the same: each line is
exactly one object, each field has the type of the schema, and each record is complete. All other files are left to
Spark, which finds what is wrong with which line.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute, json, parquet
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, ShortType, StringType

from busway_reconcile.compact.coverage import FINISHING, KEYS, MINUTE, merged_coverage
from busway_reconcile.compact.records import DISTINCT, CompactionFailed
from busway_reconcile.journal import schema
from busway_reconcile.read.files import JournalFile, by_hour

_BLOCK = 1 << 24
_LONGEST_LINE = 16 << 20
"""Bytes of text that are parsed at once."""

_KINDS = {
    ArrayType(StringType()): pa.list_(pa.string()),
    BooleanType(): pa.bool_(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    ShortType(): pa.int16(),
    StringType(): pa.string(),
}
_TIME = pa.timestamp("us", "UTC")
_RAW = pa.schema([(name, _KINDS[kind]) for name, kind in schema.FIELDS.items()])
_COMPACTED = {**dict.fromkeys(schema.TIMES, _TIME), "check": pa.int64()}

COMPACTED = pa.schema([(field.name, _COMPACTED.get(field.name, field.type)) for field in _RAW])
"""Compacted records without `landed`, which the name of their folder has."""

_DIGITS = 16
"""Digits of a number of 64 bits in hexadecimal."""

_LOCAL = "file:"
_REPEATED = [
    f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
    for field in COMPACTED
    if field.name not in DISTINCT
]
"""The columns of Parquet that get a dictionary: those of compact.records."""

_ROWS = 200_000
"""Records in a row group: Spark reads the groups of a file in several tasks."""


class NotFaultless(Exception):
    """The file has something that only Spark's reader can judge."""


class Faultless(NamedTuple):
    """The paths of the faultless files, their number of records, and the coverage of their hours."""

    paths: set[str]
    records: int
    coverage: dict[str, list[dict[str, Any]]]


class _Written(NamedTuple):
    """The files of one hour that were written into one file of Parquet."""

    files: Sequence[JournalFile]
    records: int
    coverage: list[dict[str, Any]]


def write_faultless(files: Sequence[JournalFile], folder: str, threads: int) -> Faultless:
    """
    Write the records of those *files* that are faultless below *folder*, as Spark partitions them.

    Raises CompactionFailed if a file of Parquet has not as many records as there are lines.
    """
    local = [file for file in files if file.file.path.startswith(_LOCAL)]
    shares = [(hour, share) for hour, each in by_hour(local).items() for share in _shares(each, threads)]
    root = Path(folder.removeprefix(_LOCAL))
    with ThreadPoolExecutor(threads) as pool:
        written = list(
            pool.map(
                lambda nth: _write(shares[nth][1], root / f"landed={shares[nth][0]}" / f"part-{nth}.parquet"),
                range(len(shares)),
            )
        )
    found: dict[str, list[dict[str, Any]]] = {}
    for (hour, _), each in zip(shares, written, strict=True):
        found[hour] = merged_coverage([*found.get(hour, []), *each.coverage])
    paths = {file.file.path for each in written for file in each.files}
    return Faultless(paths, sum(each.records for each in written), found)


def _shares(files: Sequence[JournalFile], count: int) -> list[list[JournalFile]]:
    """Return *files* in up to *count* groups of about the same size."""
    shares: list[list[JournalFile]] = [[] for _ in range(count)]
    sizes = [0] * count
    for file in sorted(files, key=lambda file: (-file.file.size, file.file.path)):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(file)
        sizes[smallest] += file.file.size
    return [share for share in shares if share]


def _write(files: Sequence[JournalFile], path: Path) -> _Written:
    """Write the records of those *files* that are faultless to *path*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    good: list[JournalFile] = []
    records = 0
    covered: list[dict[str, Any]] = []
    with parquet.ParquetWriter(path, COMPACTED, compression="zstd", use_dictionary=_REPEATED) as writer:
        waiting: list[pa.Table] = []
        for file in files:
            try:
                for table in faultless_records(file.file.path.removeprefix(_LOCAL)):
                    records += table.num_rows
                    covered = merged_coverage([*covered, *_coverage(table)])
                    waiting.append(table)
                    if sum(one.num_rows for one in waiting) >= _ROWS:
                        writer.write_table(pa.concat_tables(waiting), row_group_size=_ROWS)
                        waiting.clear()
            except NotFaultless:
                continue
            good.append(file)
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=_ROWS)
    if len(good) < len(files):
        # Some records of the others are written.
        path.unlink()
        return _write(good, path) if good else _Written([], 0, [])
    kept = parquet.read_metadata(path).num_rows
    if kept != records:
        raise CompactionFailed(f"{path}: kept {kept} records, expected {records} as they were read")
    return _Written(good, records, covered)


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


def faultless_records(path: str) -> Iterator[pa.Table]:
    """
    Yield the records of the gzip file *path* of this machine, in blocks; COMPACTED.

    Raises NotFaultless, also after some blocks.
    """
    try:
        with pa.input_stream(path, compression="gzip") as file:
            fields: set[str] = set()
            for text in _blocks(file):
                yield _compacted(_records(text, fields))
    except (OSError, ValueError) as error:  # Arrow's own errors are of these types
        raise NotFaultless(f"{path}: {type(error).__name__}") from error


def _blocks(file: pa.NativeFile) -> Iterator[bytes]:
    """Yield the text of *file* in blocks of whole lines."""
    rest = b""
    while piece := file.read(_BLOCK):
        whole, newline, begun = piece.rpartition(b"\n")
        if newline:
            yield b"".join((rest, whole, newline))
            rest = begun
        elif len(rest) > _LONGEST_LINE:
            raise NotFaultless("a line that is too long")
        else:
            rest += piece
    if rest:
        yield rest + b"\n"


def _records(text: bytes, fields: set[str]) -> pa.Table:
    """Return the records of a block; *fields* are those of earlier blocks of the file, and get those of this one."""
    lines = text.count(b"\n")
    # Arrow would also take one object on two lines, and two objects on one.
    if not text.startswith(b"{") or not text.endswith(b"}\n") or text.count(b"}\n{") != lines - 1:
        raise NotFaultless("lines that are not one object each")
    if not text.isascii():
        text.decode()  # Arrow would take invalid UTF-8
    table = _parsed(text, fields)
    if table.num_rows != lines:
        raise NotFaultless("lines that are not one object each")
    for name in ("v", *schema.ALWAYS_THERE):
        if table[name].null_count:
            raise NotFaultless(f"records without {name}")
    known = {"v": [schema.VERSION], "role": schema.ROLES, "observer": schema.OBSERVERS, "outcome": schema.OUTCOMES}
    for name, values in known.items():
        if not {*compute.unique(table[name]).to_pylist()} <= {*values}:
            raise NotFaultless(f"records with an unknown {name}")
    if not compute.all(_is_valid(table["journal_time"])).as_py():
        raise NotFaultless("records with an impossible time")
    return table


def _parsed(text: bytes, fields: set[str]) -> pa.Table:
    # A record has a third of all fields. Looking for the others in each line takes half of the time.
    if 0 < len(fields) < len(_RAW):
        try:
            found = _read(text, pa.schema([each for each in _RAW if each.name in fields]), unexpected="error")
        except pa.ArrowInvalid:
            pass  # a field that no earlier block had, or a fault that shows again below
        else:
            none = {each.name: pa.nulls(len(found), each.type) for each in _RAW if each.name not in fields}
            return pa.table([none[name] if name in none else found[name] for name in _RAW.names], schema=_RAW)
    found = _read(text, _RAW, unexpected="ignore")
    more = {name for name in _RAW.names if found[name].null_count < len(found)} - fields
    # Without any, there is a field that the schema does not have, perhaps in each line of the file.
    fields |= more or {*_RAW.names}
    return found


def _read(text: bytes, fields: pa.Schema, *, unexpected: Literal["error", "ignore"]) -> pa.Table:
    return json.read_json(
        pa.BufferReader(text),
        read_options=json.ReadOptions(use_threads=False, block_size=len(text)),
        parse_options=json.ParseOptions(explicit_schema=fields, unexpected_field_behavior=unexpected),
    ).combine_chunks()


def _compacted(records: pa.Table) -> pa.Table:
    columns = []
    for name in COMPACTED.names:
        column = records[name]
        if name == "check":
            column = _checksums(records)
        elif name in schema.TIMES:
            # The other times come from the message or from the sender: an invalid one says nothing about the record.
            column = compute.if_else(_is_valid(column), column, None).cast(_TIME)
        columns.append(column)
    return pa.table(columns, schema=COMPACTED)


def _is_valid(time: pa.ChunkedArray) -> pa.ChunkedArray:
    first, last = schema.VALID_TIMES
    return compute.and_(compute.greater_equal(time, first), compute.less_equal(time, last))


def _checksums(records: pa.Table) -> pa.Array:
    """Return the 64 bits over body and properties of each record: its `check`, or computed from its digests."""
    given = _numbers(records["check"])
    body = _numbers(compute.utf8_slice_codeunits(records["body_digest"], 0, _DIGITS))
    properties = compute.fill_null(_numbers(records["property_digest"]), 0)
    return compute.coalesce(given, compute.bit_wise_xor(body, properties))


def _numbers(texts: pa.ChunkedArray) -> pa.Array:
    """Return the numbers of *texts*, which have 16 hexadecimal digits each; null for null."""
    there = texts.drop_null()
    if not len(there):
        return pa.nulls(len(texts), pa.int64())
    lengths = compute.min_max(compute.binary_length(there)).as_py()
    if lengths != {"min": _DIGITS, "max": _DIGITS}:
        raise NotFaultless("digests of another length")
    decoded = bytes.fromhex("".join(there.to_pylist()))
    # Spaces, which fromhex() skips, make it shorter.
    if len(decoded) != len(there) * _DIGITS // 2:
        raise NotFaultless("digests with other characters than hexadecimal digits")
    numbers = np.frombuffer(decoded, ">i8").astype("i8")
    if len(there) == len(texts):
        return pa.array(numbers)
    spread = np.zeros(len(texts), "i8")
    is_there = compute.is_valid(texts).to_numpy()
    spread[is_there] = numbers
    return pa.array(spread, mask=~is_there)
