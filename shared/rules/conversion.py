"""
The implicit conversions of SET: a new value takes the type of the property it replaces, if possible.

Text is read as .NET reads it in the invariant culture. A number changes its type only if it keeps its value (a double
may lose digits); a number, boolean, uuid or time becomes text when the property is text.

Source: Microsoft Learn, "Subscription Rule SQL Action Syntax"; Azure/azure-service-bus issue 180.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import cast
from uuid import UUID

from shared.amqp import values
from shared.amqp.values import Value
from shared.rules.decimals import decimal_value
from shared.rules.operators import Number, number_of, single
from shared.rules.value_types import (
    DECIMALS,
    EPOCH_TICKS,
    NUMBERS,
    TEXTS,
    TICKS_PER_MILLISECOND,
    datetime_offset,
    ticks_of,
    timespan,
    timestamp_at,
    type_of,
    uri,
)

_NUMBER = re.compile(r"\s*[+-]?[0-9]+(?P<fraction>\.[0-9]+)?(?P<exponent>[Ee][+-]?[0-9]{1,4})?\s*")
_TIMESPAN = re.compile(
    r"\s*(?P<sign>-)?(?:(?P<only_days>\d{1,8})|(?:(?P<days>\d{1,8})\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})"
    r"(?::(?P<seconds>\d{1,2})(?:\.(?P<fraction>\d{1,7}))?)?)\s*",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICKS_PER_SECOND = 1000 * TICKS_PER_MILLISECOND
_TICKS_PER_MICROSECOND = 10
_HOURS, _MINUTES = 24, 60


def converted(value: Value, target: str) -> Value | None:
    """Return *value* as the type *target* (of `value_types`), None if there is no such conversion or it fails."""
    source = type_of(value)
    if source == target:
        return value
    try:
        if target in NUMBERS and target != "char":
            return _as_number(value, source, target)
        if target in TEXTS:
            text = _text_of(value, source)
            return None if text is None else values.string(text) if target == "string" else values.symbol(text)
        if target in _AT_TICKS:
            ticks = _ticks_of_moment(value, source)
            return None if ticks is None else _AT_TICKS[target](ticks)
        is_readable = source in TEXTS and target in _FROM_TEXT
        return _FROM_TEXT[target](str(value.payload)) if is_readable else None
    except (ValueError, ArithmeticError):
        return None


def _as_number(value: Value, source: str, target: str) -> Value | None:
    if source in TEXTS:
        number = _number_in(cast("str", value.payload))
    elif source in NUMBERS:
        number = number_of(value)
    else:
        return None
    if target in ("float", "double"):
        return values.double(float(number)) if target == "double" else values.float32(single(float(number)))
    if target in DECIMALS:
        # By its digits: 0.1 becomes 0.1 and not the binary fraction nearest to it.
        return decimal_value(target, Decimal(repr(number) if isinstance(number, float) else number))
    integer = int(number)
    return _INTEGER_VALUES[target](integer) if integer == number else None


def _number_in(text: str) -> Number:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError("a number")
    return int(text) if match["fraction"] is None and match["exponent"] is None else Decimal(text.strip())


def _text_of(value: Value, source: str) -> str | None:
    if source in NUMBERS - {"char"}:
        number = number_of(value)
        return repr(number).removesuffix(".0") if isinstance(number, float) else str(number)
    if source in ("timestamp", "datetime-offset"):
        return _moment_of(ticks_of(value)).isoformat().replace("+00:00", "Z")
    return str(value.payload) if source in TEXTS or source in ("char", "boolean", "uuid") else None


def _ticks_of_moment(value: Value, source: str) -> int | None:
    if source in ("timestamp", "datetime-offset"):
        return ticks_of(value)
    if source not in TEXTS:
        return None
    moment = datetime.fromisoformat(str(value.payload).strip())
    # A time without a zone is UTC, the only zone of the service.
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - _EPOCH) // timedelta(microseconds=1) * _TICKS_PER_MICROSECOND + EPOCH_TICKS


def _moment_of(ticks: int) -> datetime:
    return _EPOCH + timedelta(microseconds=(ticks - EPOCH_TICKS) // _TICKS_PER_MICROSECOND)


def _boolean(text: str) -> Value | None:
    word = text.strip().lower()
    return values.boolean(word == "true") if word in ("true", "false") else None


def _timespan(text: str) -> Value | None:
    match = _TIMESPAN.fullmatch(text)
    if match is None:
        return None
    days = int(match["only_days"] or match["days"] or 0)
    hours, minutes, seconds = (int(match[part] or 0) for part in ("hours", "minutes", "seconds"))
    if hours >= _HOURS or minutes >= _MINUTES or seconds >= _MINUTES:
        return None
    ticks = (((days * _HOURS + hours) * _MINUTES + minutes) * _MINUTES + seconds) * _TICKS_PER_SECOND
    ticks += int((match["fraction"] or "0").ljust(7, "0"))
    return timespan(-ticks if match["sign"] else ticks)


_INTEGER_VALUES: dict[str, Callable[[int], Value]] = {
    "ubyte": values.ubyte,
    "ushort": values.ushort,
    "uint": values.uint,
    "ulong": values.ulong,
    "byte": values.byte,
    "short": values.short,
    "int": values.int_,
    "long": values.long,
}
_FROM_TEXT: dict[str, Callable[[str], Value | None]] = {
    "char": values.char,
    "boolean": _boolean,
    "uuid": lambda text: values.uuid(UUID(text.strip())),
    "uri": uri,
    "timespan": _timespan,
}
_AT_TICKS = {"timestamp": timestamp_at, "datetime-offset": datetime_offset}
