"""
Conversion of single values to those that fastavro writes.

Bytes may be texts in Base64, and times texts as in RFC 3339, as `shared.codecs.plain.as_text` writes them; a decimal is
a number.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from shared.codecs.plain import Plain, as_text

type Schema = Any
type Datum = Any
type Convert = Callable[[Plain], Datum]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of local timestamps; the others are compared in UTC
_LARGEST_FLOAT = 3.4028234663852886e38
# Python cuts off digits after the microseconds.
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
_KINDS: Mapping[type, str] = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    Decimal: "a number with more digits than a double has",
    bytes: "bytes",
    type(None): "null",
}


class Mismatch(Exception):
    """A value that does not match the schema; the path names only fields of the schema."""

    def __init__(self, problem: str) -> None:
        """Keep the problem, which does not quote the value."""
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def within(self, step: str) -> "Mismatch":
        """Return it with *step* before its path."""
        self.path = step + self.path
        return self


def wrong(value: object, expected: str) -> Mismatch:
    """Return the mismatch of a value of another kind."""
    return Mismatch(f"got {_KINDS.get(type(value), 'another kind of value')}, expected {expected}")


def _null(value: Plain) -> Datum:
    if value is not None:
        raise wrong(value, "null")


def _boolean(value: Plain) -> Datum:
    if type(value) is not bool:
        raise wrong(value, "a boolean")
    return value


def _text(value: Plain) -> Datum:
    if type(value) is str:
        return value
    if isinstance(value, (date, time, UUID)):
        return as_text(value)
    raise wrong(value, "text")


def _uuid(value: Plain) -> Datum:
    made = _text(value)
    try:
        UUID(made)
    except ValueError as error:
        raise Mismatch("got another text, expected a UUID") from error
    return made


def _whole(bits: int) -> Convert:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def whole(value: Plain) -> Datum:
        if type(value) is not int:
            raise wrong(value, f"a whole number of {bits} bits")
        if not least <= value <= most:
            raise Mismatch(f"got a number out of range, expected a whole number of {bits} bits")
        return value

    return whole


def _double(value: Plain) -> Datum:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise wrong(value, "a number")
    try:
        made = float(value)
    except OverflowError:
        made = float("inf")
    if made != value:
        raise Mismatch("got a number with more digits than a double has")
    return made


def _float(value: Plain) -> Datum:
    made = _double(value)
    if _LARGEST_FLOAT < abs(made) < float("inf"):
        raise Mismatch("got a number out of range, expected one of 32 bits")
    return made


def _bytes(value: Plain) -> Datum:
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise wrong(value, "bytes, or their Base64")
    try:
        return b64decode(value, validate=True)
    except (NotBase64, ValueError) as error:
        raise Mismatch("got a text that is not Base64, expected bytes") from error


def fixed(size: int) -> Convert:
    """Return a conversion that accepts *size* bytes."""

    def exactly(value: Plain) -> Datum:
        made = _bytes(value)
        if len(made) != size:
            raise Mismatch(f"got {len(made)} bytes, expected {size}")
        return made

    return exactly


def enum(symbols: Iterable[str]) -> Convert:
    """Return a conversion that accepts one of *symbols*."""
    known = frozenset(symbols)

    def symbol(value: Plain) -> Datum:
        if type(value) is not str:
            raise wrong(value, "a symbol of the enum")
        if value not in known:
            raise Mismatch("got a text that is not a symbol of the enum")
        return value

    return symbol


def decimal_of(schema: Schema) -> Convert:
    """Return a conversion of numbers to decimals of *schema*; ValueError for an invalid precision or scale."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        raise ValueError("a decimal needs a precision of 1 or more, and a scale up to that")

    def decimal(value: Plain) -> Datum:
        # The shortest text of a double is the number that was read.
        made = Decimal(repr(value)) if type(value) in {int, float} else value
        if not isinstance(made, Decimal) or not made.is_finite():
            raise wrong(value, "a number")
        sign, digits, exponent = made.as_tuple()
        text = "".join(map(str, digits)).lstrip("0")
        shortest = text.rstrip("0")
        # A number that ends in zeros is the same with a larger exponent.
        exponent = int(exponent) + len(text) - len(shortest)
        if shortest and (exponent < -scale or len(shortest) + exponent + scale > precision):
            raise Mismatch(f"got a number that does not fit into {precision} digits, {scale} of them after the point")
        return Decimal((sign, tuple(map(int, shortest)), exponent)) if shortest else Decimal(0)

    return decimal


def _ticks(bits: int, unit: timedelta, since: Callable[[str], timedelta], what: str) -> Convert:
    """Return a conversion of a text to a number of *unit*; a number stays as it is."""
    whole = _whole(bits)

    def ticks(value: Plain) -> Datum:
        if type(value) is int:
            return whole(value)
        if isinstance(value, (date, time)):
            value = as_text(value)
        if type(value) is not str:
            raise wrong(value, what)
        try:
            passed = since(value)
        except (ValueError, OverflowError, TypeError) as error:
            raise Mismatch(f"got another text, expected {what}") from error
        count, rest = divmod(passed, unit)
        if rest or _FINER.search(value):
            raise Mismatch(f"got a time that is more precise than the schema allows, expected {what}")
        return whole(count)

    return ticks


def _since_epoch(text: str) -> timedelta:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError
    return moment.astimezone(UTC).replace(tzinfo=None) - _EPOCH


def _since_local_epoch(text: str) -> timedelta:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        raise ValueError
    return moment - _EPOCH


def _since_first_day(text: str) -> timedelta:
    return date.fromisoformat(text) - _EPOCH.date()


def _since_midnight(text: str) -> timedelta:
    moment = time.fromisoformat(text)
    if moment.tzinfo is not None:
        raise ValueError
    return datetime.combine(_EPOCH.date(), moment) - _EPOCH


PRIMITIVES: Mapping[str, Convert] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole(32),
    "long": _whole(64),
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _text,
}
_MILLISECOND, _MICROSECOND = timedelta(milliseconds=1), timedelta(microseconds=1)
LOGICAL: Mapping[tuple[str, object], Convert] = {
    ("string", "uuid"): _uuid,
    ("int", "date"): _ticks(32, timedelta(days=1), _since_first_day, "a date"),
    ("int", "time-millis"): _ticks(32, _MILLISECOND, _since_midnight, "a time of day"),
    ("long", "time-micros"): _ticks(64, _MICROSECOND, _since_midnight, "a time of day"),
    ("long", "timestamp-millis"): _ticks(64, _MILLISECOND, _since_epoch, "a time with its offset"),
    ("long", "timestamp-micros"): _ticks(64, _MICROSECOND, _since_epoch, "a time with its offset"),
    ("long", "local-timestamp-millis"): _ticks(64, _MILLISECOND, _since_local_epoch, "a time without an offset"),
    ("long", "local-timestamp-micros"): _ticks(64, _MICROSECOND, _since_local_epoch, "a time without an offset"),
}
