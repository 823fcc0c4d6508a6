"""
Reference tables: rows of CSV, JSON or Parquet by the value of one column.

CSV (RFC 4180, UTF-8) begins with a line of column names; its values are texts. JSON is an array of objects. Parquet is
read with DuckDB, which only apps with such tables need to install. Errors name the line or row and never quote values.
"""

import csv
import io
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path, PurePosixPath
from uuid import UUID

from shared.codecs.json import Json, read
from shared.errors import MessageRejected

FORMATS = (".csv", ".json", ".parquet")
DUCKDB = "pip install duckdb==2.0.0"

_ZONED = "TIMESTAMP WITH TIME ZONE"

type Cell = Json | Decimal | datetime
type Row = Mapping[str, Cell]


class BrokenTableError(ValueError):
    """A table that cannot be read or used."""


def rows_of(content: bytes, name: str) -> tuple[Sequence[str], Iterator[Row]]:
    """Return the columns and rows of a table, in the format of its *name*'s suffix; raises BrokenTableError."""
    match PurePosixPath(name).suffix.lower():
        case ".csv":
            return _csv(content)
        case ".json":
            return _json(content)
        case _:
            return _parquet(content)


def key_text(value: object) -> str | None:
    """Return a key as text: a text as it is, a whole number in digits; None for other values."""
    match value:
        case bool():
            return None
        case str():
            return value
        case int() | UUID():
            return str(value)
        case _:
            return None


def by_key(columns: Sequence[str], rows: Iterable[Row], column: str) -> dict[str, Row]:
    """Return the rows by the value of *column*, which must be unique; raises BrokenTableError."""
    if column not in columns:
        raise BrokenTableError(f"has no column {column!r}, expected it to be the key; it has {_listed(columns)}")
    found: dict[str, Row] = {}
    for number, row in enumerate(rows, 1):
        key = key_text(row.get(column))
        if key is None:
            raise BrokenTableError(f"row {number} has no key in {column!r}, expected text or a whole number")
        if key in found:
            raise BrokenTableError(f"row {number} has the key of an earlier row in {column!r}, expected each once")
        found[key] = row
    return found


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "none"


def _named_once(columns: Sequence[str]) -> Sequence[str]:
    if len(set(columns)) != len(columns):
        raise BrokenTableError("has two columns with the same name")
    return columns


def _csv(content: bytes) -> tuple[Sequence[str], Iterator[Row]]:
    try:
        # Spreadsheets write UTF-8 with a byte order mark.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BrokenTableError(f"is not UTF-8 at byte {error.start}, expected CSV in UTF-8") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = _named_once(next(reader, []))
    except csv.Error as error:
        raise BrokenTableError("line 1 is not CSV") from error

    def rows() -> Iterator[Row]:
        try:
            for line in reader:
                if not line:
                    continue
                if len(line) != len(columns):
                    raise BrokenTableError(
                        f"line {reader.line_num} has {len(line)} values, expected {len(columns)}, one for each column"
                    )
                yield dict(zip(columns, line, strict=True))
        except csv.Error as error:
            raise BrokenTableError(f"line {reader.line_num} is not CSV") from error

    return columns, rows()


def _json(content: bytes) -> tuple[Sequence[str], Iterator[Row]]:
    try:
        read(content)
    except MessageRejected as error:
        raise BrokenTableError(error.description.removeprefix("body ")) from error
    # Read again with all digits of its numbers.
    table = json.loads(content, parse_float=Decimal)
    if not isinstance(table, list):
        raise BrokenTableError("is not a table, expected an array of objects")
    rows: list[Row] = []
    for number, row in enumerate(table, 1):
        if not isinstance(row, dict):
            raise BrokenTableError(f"row {number} is not an object")
        rows.append(row)
    return list(dict.fromkeys(name for row in rows for name in row)), iter(rows)


def _parquet(content: bytes) -> tuple[Sequence[str], Iterator[Row]]:
    try:
        import duckdb  # noqa: PLC0415 - 68 MB, only for Parquet
    except ImportError as error:
        raise BrokenTableError(f"is Parquet, which needs DuckDB in the app: {DUCKDB}") from error
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "table.parquet")
        file.write_bytes(content)
        try:
            with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
                found = connection.read_parquet(str(file))
                columns = _named_once(found.columns)
                # DuckDB needs another package for times with a zone; without a zone they are UTC.
                wanted = (
                    f"make_timestamp_ms(epoch_ms({_quoted(name)}))" if str(kind) == _ZONED else _quoted(name)
                    for name, kind in zip(columns, found.types, strict=True)
                )
                lines = found.project(", ".join(wanted)).fetchall()
        except duckdb.Error as error:
            raise BrokenTableError("is not Parquet that can be read") from error
    return columns, (dict(zip(columns, map(_cell, line), strict=True)) for line in lines)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _cell(value: object) -> Cell:
    match value:
        case None | str() | bool() | int() | float() | Decimal():
            return value
        case datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        case date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
    raise BrokenTableError(f"has a value of the type {type(value).__name__}, expected text, number, boolean or time")


def json_text(value: Cell) -> str:
    """Return a value as JSON, a number with all its digits."""
    match value:
        case Decimal():
            return str(value)
        case dict() | list():
            raise TypeError
        case datetime():
            return json.dumps(value.isoformat().replace("+00:00", "Z"))
        case _:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
