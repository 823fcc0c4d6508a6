"""A table's columns as application properties and as members of a JSON body."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal, NamedTuple

from shared.amqp.values import Value, boolean, double, long, string, timestamp
from shared.editors.lookup.json_members import Members
from shared.editors.lookup.tables import BrokenTableError, Cell, Row, json_text
from shared.editors.options import Strict

_LONGS = range(-(2**63), 2**63)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_MOST_DIGITS = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOOLEANS = {"true": True, "false": False}


class Column(Strict):
    """A column, and the type of its values."""

    column: str
    """Name of the column."""
    type: Literal["auto", "string", "long", "double", "boolean", "timestamp"] = "auto"
    """`auto` is the type in the table, in CSV always text; for other types, an empty text is no value."""


class Enrichment(NamedTuple):
    """What a row of a table adds to a message."""

    properties: Mapping[str, Value | None]
    members: Members


def enrichments(
    rows: Mapping[str, Row], properties: Mapping[str, Column], members: Mapping[str, Column], columns: Sequence[str]
) -> dict[str, Enrichment]:
    """Return what each row adds, by its key; raises BrokenTableError."""
    used = [*properties.values(), *members.values()]
    missing = [column.column for column in used if column.column not in columns]
    if missing:
        raise BrokenTableError(f"has no column {missing[0]!r}, it has {', '.join(columns)}")
    found: dict[str, Enrichment] = {}
    for number, (key, row) in enumerate(rows.items(), 1):
        found[key] = enrichment(row, properties, members, f"row {number}")
    return found


def enrichment(row: Row, properties: Mapping[str, Column], members: Mapping[str, Column], place: str) -> Enrichment:
    """Return what one row adds; raises BrokenTableError."""
    return Enrichment(dict(_made(row, properties, place, _value)), tuple(_made(row, members, place, json_text)))


def _made[T](row: Row, columns: Mapping[str, Column], place: str, make: Callable[[Cell], T]) -> Iterable[tuple[str, T]]:
    for name, column in columns.items():
        try:
            yield name, make(_CONVERT[column.type](row.get(column.column)))
        except (ValueError, TypeError, OverflowError) as error:
            expected = "text, a number or a boolean" if column.type == "auto" else column.type
            problem = f"{place}: the value in {column.column!r} is not usable, expected {expected}"
            raise BrokenTableError(problem) from error


def _value(cell: Cell) -> Value | None:
    """Return the value of an application property, None for no value."""
    match cell:
        case None:
            return None
        case str():
            return string(cell)
        case bool():
            return boolean(cell)
        case int() if cell in _LONGS:
            return long(cell)
        case float() | Decimal() if math.isfinite(cell) and math.isfinite(float(cell)):
            return double(float(cell))
        case datetime():
            return timestamp((cell - _EPOCH) // timedelta(milliseconds=1))
    raise ValueError


def _string(cell: Cell) -> Cell:
    match cell:
        case None | str():
            return cell
        case bool() | Decimal() | datetime():
            return json_text(cell).strip('"')
        case int() | float():
            return str(cell)
    raise TypeError


def _long(cell: Cell) -> Cell:
    match cell:
        case None | "":
            return None
        case str() if not _NUMBER.fullmatch(cell):
            raise ValueError
        case str() | int() | float() | Decimal():
            number = Decimal(cell)
            if number == number.to_integral_value() and number.adjusted() < _MOST_DIGITS:
                return int(number)
    raise ValueError


def _double(cell: Cell) -> Cell:
    match cell:
        case None | "":
            return None
        case str() if _NUMBER.fullmatch(cell):
            return Decimal(cell)
        case bool() | str():
            raise ValueError
        case int():
            return Decimal(cell)
        case float() | Decimal():
            return cell
    raise TypeError


def _boolean(cell: Cell) -> Cell:
    match cell:
        case None | "":
            return None
        case bool():
            return cell
        case str():
            if cell.lower() in _BOOLEANS:
                return _BOOLEANS[cell.lower()]
    raise ValueError


def _timestamp(cell: Cell) -> Cell:
    match cell:
        case None | "":
            return None
        case datetime():
            return cell
        case str():
            time = datetime.fromisoformat(cell)
            return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    raise TypeError


_CONVERT: Mapping[str, Callable[[Cell], Cell]] = {
    "auto": lambda cell: cell,
    "string": _string,
    "long": _long,
    "double": _double,
    "boolean": _boolean,
    "timestamp": _timestamp,
}
