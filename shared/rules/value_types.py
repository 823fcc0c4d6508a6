"""
The types that rules distinguish, as .NET sees AMQP values.

A type is named by its AMQP kind, and by the last part of its descriptor for the three described types that .NET clients
send as properties: timespan, datetime-offset, uri.

Units: timespan and datetime-offset are ticks of 100 ns, the latter counted from the start of year 1, UTC.
Source: Microsoft Learn, "AMQP 1.0 in .NET".
"""

from typing import cast

from shared.amqp.values import KINDS, Described, Value, described, long, string, symbol, timestamp

TICKS_PER_MILLISECOND = 10_000
# From the start of year 1 to 1970, where an AMQP timestamp starts.
EPOCH_TICKS = 621_355_968_000_000_000

SIGNED_INTEGERS = frozenset(["byte", "short", "int", "long"])
UNSIGNED_INTEGERS = frozenset(["ubyte", "ushort", "uint", "ulong", "char"])
INTEGERS = SIGNED_INTEGERS | UNSIGNED_INTEGERS
DECIMALS = frozenset(["decimal32", "decimal64", "decimal128"])
NUMBERS = INTEGERS | DECIMALS | frozenset(["float", "double"])
TEXTS = frozenset(["string", "symbol"])

BOOLEAN_CODES = frozenset(code for code, kind in KINDS.items() if kind == "boolean")
DOUBLE_CODES = frozenset(code for code, kind in KINDS.items() if kind == "double")
TEXT_CODES = frozenset(code for code, kind in KINDS.items() if kind in TEXTS)
# A char is a number too, but its payload is not an int.
INTEGER_CODES = frozenset(code for code, kind in KINDS.items() if kind in INTEGERS - {"char"})
# Some values in the full encodings of long and ulong have no exact double.
INTEGER_CODES_WITHIN_DOUBLE = INTEGER_CODES - {0x80, 0x81}

_DESCRIPTORS = {
    "com.microsoft:timespan": ("timespan", "long"),
    "com.microsoft:datetime-offset": ("datetime-offset", "long"),
    "com.microsoft:uri": ("uri", "string"),
}


def type_of(value: Value) -> str:
    """Return the name of the type of *value*: its AMQP kind, or timespan, datetime-offset or uri."""
    kind = KINDS.get(value.code, "unknown")
    if kind != "described":
        return kind
    descriptor, content = cast("Described", value.payload)
    name, content_kind = _DESCRIPTORS.get(str(descriptor.payload), (kind, ""))
    return name if descriptor.kind == "symbol" and content.kind == content_kind else kind


def ticks_of(value: Value) -> int:
    """Return the ticks of a timespan, a datetime-offset or a timestamp."""
    if value.kind == "timestamp":
        return cast("int", value.payload) * TICKS_PER_MILLISECOND + EPOCH_TICKS
    return cast("int", cast("Described", value.payload).value.payload)


def timespan(ticks: int) -> Value:
    """Return a duration as .NET's TimeSpan is sent; a ValueError beyond 64 bits."""
    return described(symbol("com.microsoft:timespan"), long(ticks))


def datetime_offset(ticks: int) -> Value:
    """Return a point in time as .NET's DateTimeOffset is sent; a ValueError beyond 64 bits."""
    return described(symbol("com.microsoft:datetime-offset"), long(ticks))


def timestamp_at(ticks: int) -> Value:
    """Return the timestamp at *ticks*, truncated to milliseconds."""
    return timestamp((ticks - EPOCH_TICKS) // TICKS_PER_MILLISECOND)


def uri(text: str) -> Value:
    """Return an address as .NET's Uri is sent."""
    return described(symbol("com.microsoft:uri"), string(text))
