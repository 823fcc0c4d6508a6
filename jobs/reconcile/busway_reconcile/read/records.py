"""
Raw files as records, read by Arrow: in threads of this process, or on Spark's workers.

Arrow parses a block of lines at once if each line is exactly one object, each field has its type, and each record is
complete. Any other block is parsed line by line, which shows what is wrong with which line.
"""

import io
import json
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pyarrow import json as arrow_json
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, ShortType, StringType

from busway_reconcile.journal import schema
from busway_reconcile.read.files import INCOMPLETE, MALFORMED, OF_VERSION
from busway_reconcile.read.gzip_members import Torn, texts_of

_BLOCK = 1 << 24
"""Bytes of text that are parsed at once, about."""

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
_KNOWN = {"v": [schema.VERSION], "role": schema.ROLES, "observer": schema.OBSERVERS, "outcome": schema.OUTCOMES}

COMPACTED = pa.schema([(field.name, _COMPACTED.get(field.name, field.type)) for field in _RAW])
"""Compacted records without `landed`, which the name of their folder has."""

_SHORTEST = 100
"""Bytes of a record, at least."""

_DIGITS = 16
"""Digits of a number of 64 bits in hexadecimal."""


class _NotFaultless(Exception):
    """A block has something that is judged line by line."""


def records_of(content: bytes, troubles: dict[str, int]) -> Iterator[pa.Table]:
    """Yield the records of a raw file, in tables of COMPACTED; *troubles* gets the number of each other thing in it."""
    fields: set[str] = set()
    for text in _blocks(content, troubles):
        try:
            table = _by_block(text, fields)
        except (_NotFaultless, ValueError):  # Arrow's own errors are of the second type
            table = _by_line(text, troubles)
        yield _compacted(table)


def _blocks(content: bytes, troubles: dict[str, int]) -> Iterator[bytes]:
    """Yield the lines of the whole gzip members of *content* in blocks."""
    waiting: list[bytes] = []
    size = 0
    try:
        for text in texts_of(content):
            waiting.append(text if text.endswith(b"\n") else text + b"\n")
            size += len(text)
            if size >= _BLOCK:
                yield b"".join(waiting)
                waiting, size = [], 0
    except Torn as error:
        troubles[str(error)] = 1
    if waiting:
        yield b"".join(waiting)


def _by_block(text: bytes, fields: set[str]) -> pa.Table:
    """Return the records of a block; *fields* are those of earlier blocks of the file, and get those of this one."""
    lines = text.count(b"\n")
    # Arrow would also take one object on two lines, and two objects on one.
    if not text.startswith(b"{") or not text.endswith(b"}\n") or text.count(b"}\n{") != lines - 1:
        raise _NotFaultless
    # It would also take a gigabyte for millions of empty objects: each has all columns.
    if lines * _SHORTEST > len(text):
        raise _NotFaultless
    if not text.isascii():
        text.decode()  # Arrow would take invalid UTF-8
    table = _parsed(text, fields)
    is_complete = table.num_rows == lines and not any(table[name].null_count for name in ("v", *schema.ALWAYS_THERE))
    if not is_complete or not compute.all(_is_valid(table["journal_time"])).as_py():
        raise _NotFaultless
    for name, values in _KNOWN.items():
        if not {*compute.unique(table[name]).to_pylist()} <= {*values}:
            raise _NotFaultless
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
    return arrow_json.read_json(
        pa.BufferReader(text),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text)),
        parse_options=arrow_json.ParseOptions(explicit_schema=fields, unexpected_field_behavior=unexpected),
    ).combine_chunks()


def _by_line(text: bytes, troubles: dict[str, int]) -> pa.Table:
    rows = []
    for line in io.BytesIO(text):
        # An empty line is no fault.
        if line.strip():
            found = _record(line)
            if isinstance(found, str):
                troubles[found] = troubles.get(found, 0) + 1
            else:
                rows.append(found)
    return pa.Table.from_pylist(rows, schema=_RAW)


def _record(line: bytes) -> dict[str, Any] | str:
    """Return the fields of a record, or the reason why *line* has none."""
    try:
        found = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return MALFORMED
    version = found.get("v") if isinstance(found, dict) else None
    if not _fits(version, pa.int32()):
        return MALFORMED
    if version != schema.VERSION:
        return f"{OF_VERSION}{version}"
    record = {name: found[name] for name in _RAW.names if found.get(name) is not None}
    if not all(_fits(value, _RAW.field(name).type) for name, value in record.items()):
        return MALFORMED
    if any(name not in record for name in schema.ALWAYS_THERE):
        return INCOMPLETE
    first, last = schema.VALID_TIMES
    is_known = all(record[name] in values for name, values in _KNOWN.items())
    return _storable(record) if is_known and first <= record["journal_time"] <= last else MALFORMED


def _fits(value: object, kind: pa.DataType) -> bool:
    if isinstance(value, list):
        return pa.types.is_list(kind) and all(each is None or isinstance(each, str) for each in value)
    if pa.types.is_integer(kind):
        most = 1 << (kind.bit_width - 1)
        return type(value) is int and -most <= value < most
    return isinstance(value, bool if pa.types.is_boolean(kind) else str) and not pa.types.is_list(kind)


def _storable(value: Any) -> Any:  # noqa: ANN401 - what JSON has
    """Return *value* without half surrogate pairs: the reason of an error may have one."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case list():
            return [_storable(each) for each in value]
        case dict():
            return {name: _storable(each) for name, each in value.items()}
    return value


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
    """Return the numbers of *texts* that have 16 hexadecimal digits; null for others."""
    there = texts.drop_null()
    if not len(there):
        return pa.nulls(len(texts), pa.int64())
    lengths = compute.min_max(compute.binary_length(there)).as_py()
    try:
        decoded = bytes.fromhex("".join(there.to_pylist())) if lengths == {"min": _DIGITS, "max": _DIGITS} else b""
    except ValueError:
        decoded = b""
    # Spaces, which fromhex() skips, make it shorter.
    if len(decoded) != len(there) * _DIGITS // 2:
        is_number = compute.match_substring_regex(texts, f"^[0-9A-Fa-f]{{{_DIGITS}}}$")
        return _numbers(compute.if_else(is_number, texts, None))
    numbers = np.frombuffer(decoded, ">i8").astype("i8")
    if len(there) == len(texts):
        return pa.array(numbers)
    spread = np.zeros(len(texts), "i8")
    is_there = compute.is_valid(texts).to_numpy()
    spread[is_there] = numbers
    return pa.array(spread, mask=~is_there)
