"""
Values of every AMQP type as text for people.

A value that does not show its type has it in parentheses: `12.50 (decimal128)`, `00:05:00 (timespan)`.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from shared.amqp.codec import items_of, pairs_of
from shared.amqp.values import Array, Described, Value
from shared.printable import json_line, printable
from shared.rules.decimals import decimal_of
from shared.rules.value_types import DECIMALS, TEXTS, ticks_of, type_of

PLAIN = frozenset(["string", "null", "boolean", "list", "map"])
"""The types that a text shows."""

_TICKS_PER_SECOND = 10_000_000
_TICKS_PER_MICROSECOND = 10
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60
# Beyond these, zeros would hide the digits.
_WRITTEN_OUT = range(-40, 1)


def type_name(value: Value) -> str:
    """Return the type of *value*, that of .NET where AMQP has none of its own; an array names that of its items."""
    payload = value.payload
    if isinstance(payload, Array):
        return f"array of {type_name(payload.items[0])}" if payload.items else "array"
    return type_of(value)


def value_text(value: Value) -> str:
    """Return *value* without its type, in one line of printable characters."""
    payload = value.payload
    match type_of(value):
        case "array" if isinstance(payload, Array):
            text = f"[{', '.join(map(value_text, payload.items))}]"
        case "list":
            text = f"[{', '.join(map(typed_text, items_of(value)))}]"
        case "map":
            pairs = [f"{_key_text(key)}: {typed_text(item)}" for key, item in pairs_of(value)]
            text = "{" + ", ".join(pairs) + "}"
        case kind if isinstance(payload, bytes):
            text = decimal_text(decimal_of(kind, payload)) if kind in DECIMALS else payload.hex(" ") or "(empty)"
        case "string" | "null" | "boolean":
            text = json_line(payload)
        case "timestamp" | "datetime-offset":
            text = moment_text(ticks_of(value))
        case "timespan":
            text = timespan_text(ticks_of(value))
        case kind if isinstance(payload, Described):
            content = payload.value
            text = value_text(content) if kind == "uri" else f"{value_text(payload.descriptor)}: {typed_text(content)}"
        case _:
            text = printable(str(payload))
    return text


def typed_text(value: Value) -> str:
    """Return *value* with its type, unless it shows it."""
    name = type_name(value)
    text = value_text(value)
    return text if name in PLAIN else f"{text} ({name})"


def decimal_text(number: Decimal) -> str:
    """Return a decimal with all its digits, and an exponent only where many zeros would take their place."""
    exponent = number.as_tuple().exponent
    return format(number, "f") if exponent in _WRITTEN_OUT else str(number)


def moment_text(ticks: int) -> str:
    """Return a time as in RFC 3339; *ticks* are since the year 1, UTC."""
    try:
        moment = _YEAR_ONE + timedelta(microseconds=ticks // _TICKS_PER_MICROSECOND)
    except OverflowError:
        return f"{ticks} ticks since the year 1"
    fraction = f".{ticks % _TICKS_PER_SECOND:07}".rstrip("0").rstrip(".")
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}Z"


def timespan_text(ticks: int) -> str:
    """Return a duration as .NET writes it, [-][d.]hh:mm:ss[.fffffff]."""
    seconds, fraction = divmod(abs(ticks), _TICKS_PER_SECOND)
    days, rest = divmod(seconds, _DAY)
    clock = f"{rest // _HOUR:02}:{rest % _HOUR // _MINUTE:02}:{rest % _MINUTE:02}"
    sign, whole = "-" if ticks < 0 else "", f"{days}." if days else ""
    return f"{sign}{whole}{clock}{f'.{fraction:07}' if fraction else ''}"


def _key_text(key: Value) -> str:
    return json_line(key.payload) if key.kind in TEXTS else typed_text(key)
