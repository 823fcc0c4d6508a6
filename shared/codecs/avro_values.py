"""
Values as an Avro schema has them, prepared for the library that writes them.

The library writes what it can make fit: it cuts off fractions, leaves out what is no field, and writes beyond the
range of an int. So every value is compared with the schema first. Bytes are Base64 where they are text, times as RFC
3339 has them, both as `shared.codecs.plain.as_text` writes them; a decimal is a number.
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
_ABSENT = object()
# Python cuts off what is finer than microseconds.
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")
_KINDS: Mapping[type, str] = {
    dict: "a mapping",
    list: "a list",
    str: "a text",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    Decimal: "a number with more digits than a double has",
    bytes: "bytes",
    type(None): "null",
}
# In which order the branches of a union are tried: a text is a text before it is Base64.
_LAST = ("bytes", "fixed", "map")


class Mismatch(Exception):
    """A value is not as the schema says; the path names fields of the schema only."""

    def __init__(self, told: str) -> None:
        """Hold what is told of the value."""
        super().__init__(told)
        self.told = told
        self.path = ""

    def within(self, step: str) -> "Mismatch":
        """Return it as seen from one level above."""
        self.path = step + self.path
        return self


def converter(schema: Schema, named: Mapping[str, Schema]) -> Convert:
    """Return what prepares values for a parsed *schema*; ValueError for one that cannot be used."""
    return _Compiler(named).convert(schema)


class _Compiler:
    """Makes a function of every type of one schema."""

    def __init__(self, named: Mapping[str, Schema]) -> None:
        self._named = named
        self._made: dict[str, Convert] = {}

    def convert(self, schema: Schema) -> Convert:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in self._named:
                return self._by_name(schema)
            return _PRIMITIVES[schema]
        kind = schema["type"]
        match kind:
            case "array":
                return _array(self.convert(schema["items"]))
            case "map":
                return _map(self.convert(schema["values"]))
            case "record" | "error" | "enum" | "fixed":
                return self._by_name(schema["name"])
        logical = schema.get("logicalType")
        if logical == "decimal" and kind == "bytes":
            return _decimal(schema)
        return _LOGICAL.get((kind, logical)) or self.convert(kind)

    def _by_name(self, name: str) -> Convert:
        if name not in self._made:
            # A record may hold itself: whoever asks while it is made gets what will find it.
            self._made[name] = lambda value: self._made[name](value)  # noqa: PLW0108 - it looks the other up later
            self._made[name] = self._named_type(name, self._named[name])
        return self._made[name]

    def _named_type(self, name: str, schema: Schema) -> Convert:
        match schema["type"]:
            case "enum":
                return _enum(schema["symbols"])
            case "fixed":
                size = schema["size"]
                if type(size) is not int or not 0 <= size < 2**31:
                    raise ValueError(f"{name}: size: expected a number of bytes")
                return _decimal(schema) if schema.get("logicalType") == "decimal" else _fixed(size)
        fields = schema["fields"]
        names = [field["name"] for field in fields]
        if len(set(names)) != len(names):
            raise ValueError(f"{name}: has two fields of one name")
        made = []
        for field in fields:
            convert = self.convert(field["type"])
            default = self._default(field["type"], field["default"]) if "default" in field else _ABSENT
            made.append((field["name"], convert, default))
        return _record(made)

    def _default(self, schema: Schema, value: Plain) -> Datum:
        """Return the datum of a default, in which bytes are written as the characters of their codes."""
        if isinstance(schema, list):
            made = self._default(schema[0], value)
            return made if schema[0] == "null" else (_tag(schema[0]), made)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema["type"] if isinstance(schema, dict) else schema
        try:
            match kind:
                case "bytes" | "fixed":
                    return value.encode("latin-1")
                case "array":
                    return [self._default(schema["items"], each) for each in value]
                case "map":
                    return {name: self._default(schema["values"], each) for name, each in value.items()}
                case "record" | "error":
                    types = {field["name"]: field for field in schema["fields"]}
                    given = {name: field.get("default") for name, field in types.items()} | value
                    return {name: self._default(types[name]["type"], each) for name, each in given.items()}
            return self.convert(schema)(value)
        except (Mismatch, AttributeError, TypeError, KeyError, UnicodeEncodeError) as error:
            raise ValueError("has a default that is not of its field's type") from error

    def _union(self, schemas: list[Schema]) -> Convert:
        tags = [_tag(schema) for schema in schemas]
        if len(set(tags)) != len(tags) or any(isinstance(schema, list) for schema in schemas):
            raise ValueError("a union has one type twice, or a union in it")
        branches = [(tag, self.convert(schema)) for tag, schema in zip(tags, schemas, strict=True) if tag != "null"]
        branches.sort(key=lambda branch: branch[0] in _LAST)
        return _union(branches, takes_null="null" in tags)


def _tag(schema: Schema) -> str:
    """Return by what the library knows a branch of a union."""
    if not isinstance(schema, dict):
        return str(schema)
    return str(schema["name"] if schema["type"] in {"record", "error", "enum", "fixed"} else schema["type"])


def _wrong(value: object, expected: str) -> Mismatch:
    return Mismatch(f"got {_KINDS.get(type(value), 'another kind of value')}, expected {expected}")


def _null(value: Plain) -> Datum:
    if value is not None:
        raise _wrong(value, "null")


def _boolean(value: Plain) -> Datum:
    if type(value) is not bool:
        raise _wrong(value, "a boolean")
    return value


def _text(value: Plain) -> Datum:
    if type(value) is str:
        return value
    if isinstance(value, (date, time, UUID)):
        return as_text(value)
    raise _wrong(value, "a text")


def _uuid(value: Plain) -> Datum:
    made = _text(value)
    try:
        UUID(made)
    except ValueError as error:
        raise Mismatch("got a text that is none, expected a UUID") from error
    return made


def _whole(bits: int) -> Convert:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def whole(value: Plain) -> Datum:
        if type(value) is not int:
            raise _wrong(value, f"a whole number of {bits} bits")
        if not least <= value <= most:
            raise Mismatch(f"got a number out of range, expected a whole number of {bits} bits")
        return value

    return whole


def _double(value: Plain) -> Datum:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise _wrong(value, "a number")
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
        raise _wrong(value, "bytes, or their Base64")
    try:
        return b64decode(value, validate=True)
    except (NotBase64, ValueError) as error:
        raise Mismatch("got a text that is no Base64, expected bytes") from error


def _fixed(size: int) -> Convert:
    def fixed(value: Plain) -> Datum:
        made = _bytes(value)
        if len(made) != size:
            raise Mismatch(f"got {len(made)} bytes, expected {size}")
        return made

    return fixed


def _enum(symbols: Iterable[str]) -> Convert:
    known = frozenset(symbols)

    def enum(value: Plain) -> Datum:
        if type(value) is not str:
            raise _wrong(value, "a symbol of the enum")
        if value not in known:
            raise Mismatch("got a text that is no symbol of the enum")
        return value

    return enum


def _decimal(schema: Schema) -> Convert:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        raise ValueError("a decimal needs a precision of 1 or more, and a scale up to that")

    def decimal(value: Plain) -> Datum:
        # The shortest text of a double is what was read.
        made = Decimal(repr(value)) if type(value) in {int, float} else value
        if not isinstance(made, Decimal) or not made.is_finite():
            raise _wrong(value, "a number")
        sign, digits, exponent = made.as_tuple()
        text = "".join(map(str, digits)).lstrip("0")
        shortest = text.rstrip("0")
        # What ends in zeros is the same number with a larger exponent.
        exponent = int(exponent) + len(text) - len(shortest)
        if shortest and (exponent < -scale or len(shortest) + exponent + scale > precision):
            raise Mismatch(f"got a number beyond {precision} digits of which {scale} are a fraction")
        return Decimal((sign, tuple(map(int, shortest)), exponent)) if shortest else Decimal(0)

    return decimal


def _ticks(bits: int, unit: timedelta, since: Callable[[str], timedelta], what: str) -> Convert:
    """Return what makes a number of *unit* of a text; a number is let through."""
    whole = _whole(bits)

    def ticks(value: Plain) -> Datum:
        if type(value) is int:
            return whole(value)
        if isinstance(value, (date, time)):
            value = as_text(value)
        if type(value) is not str:
            raise _wrong(value, what)
        try:
            passed = since(value)
        except (ValueError, OverflowError, TypeError) as error:
            raise Mismatch(f"got a text that is none, expected {what}") from error
        count, rest = divmod(passed, unit)
        if rest or _FINER.search(value):
            raise Mismatch(f"got a time that is finer than the schema says, expected {what}")
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


def _array(item: Convert) -> Convert:
    def array(value: Plain) -> Datum:
        if type(value) is not list:
            raise _wrong(value, "a list")
        made = []
        try:
            for each in value:
                made.append(item(each))  # noqa: PERF401 - its length is the place of a mismatch
        except Mismatch as error:
            raise error.within(f"[{len(made)}]") from None
        return made

    return array


def _map(item: Convert) -> Convert:
    def mapping(value: Plain) -> Datum:
        if type(value) is not dict:
            raise _wrong(value, "a mapping")
        try:
            return {name: item(each) for name, each in value.items()}
        except Mismatch as error:
            raise error.within(".*") from None

    return mapping


def _record(fields: list[tuple[str, Convert, Datum]]) -> Convert:
    required = [name for name, _, default in fields if default is _ABSENT]

    def record(value: Plain) -> Datum:
        if type(value) is not dict:
            raise _wrong(value, "a mapping")
        made = {}
        left = len(value)
        name = ""
        try:
            for name, convert, default in fields:
                each = value.get(name, _ABSENT)
                if each is not _ABSENT:
                    made[name] = convert(each)
                    left -= 1
                elif default is not _ABSENT:
                    made[name] = default
        except Mismatch as error:
            raise error.within(f".{name}") from None
        if left:
            raise Mismatch("has a name that is no field of the schema")
        if len(made) != len(fields):
            raise Mismatch(f"has no {', '.join(each for each in required if each not in value)}")
        return made

    return record


def _union(branches: list[tuple[str, Convert]], *, takes_null: bool) -> Convert:
    def union(value: Plain) -> Datum:
        if value is None and takes_null:
            return None
        for tag, convert in branches:
            try:
                return tag, convert(value)
            except Mismatch:
                continue
        raise _wrong(value, f"one of {len(branches) + takes_null} types")

    def only(value: Plain) -> Datum:
        return None if value is None and takes_null else (tag, convert(value))

    if len(branches) != 1:
        return union
    tag, convert = branches[0]
    return only


_PRIMITIVES: Mapping[str, Convert] = {
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
_LOGICAL: Mapping[tuple[str, object], Convert] = {
    ("string", "uuid"): _uuid,
    ("int", "date"): _ticks(32, timedelta(days=1), _since_first_day, "a date"),
    ("int", "time-millis"): _ticks(32, _MILLISECOND, _since_midnight, "a time of day"),
    ("long", "time-micros"): _ticks(64, _MICROSECOND, _since_midnight, "a time of day"),
    ("long", "timestamp-millis"): _ticks(64, _MILLISECOND, _since_epoch, "a time with its offset"),
    ("long", "timestamp-micros"): _ticks(64, _MICROSECOND, _since_epoch, "a time with its offset"),
    ("long", "local-timestamp-millis"): _ticks(64, _MILLISECOND, _since_local_epoch, "a time without an offset"),
    ("long", "local-timestamp-micros"): _ticks(64, _MICROSECOND, _since_local_epoch, "a time without an offset"),
}
