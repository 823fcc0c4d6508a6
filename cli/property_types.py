"""
Every type that Service Bus allows for an application property, by .NET's names.

Source: Microsoft, ServiceBusMessage.ApplicationProperties and "AMQP 1.0 in Azure Service Bus, property types": a Uri, a
DateTimeOffset and a TimeSpan are described values, the latter two counted in ticks of 100 ns.
"""

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from uuid import UUID

from shared.amqp import values
from shared.amqp.values import NULL, Described, Value
from shared.rules.decimals import decimal_of, decimal_value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_TICKS_PER_MICROSECOND = 10
# These cannot pass through Azure's Functions host, because .NET's types do not hold them.
_NET_DECIMAL_BITS = 96
_NET_DECIMAL_PLACES = 28


def _described(name: str, value: Value) -> Value:
    return values.described(values.symbol(f"com.microsoft:{name}"), value)


def uri(text: str) -> Value:
    """Return a Uri."""
    return _described("uri", values.string(text))


def date_time_offset(ticks: int) -> Value:
    """Return a DateTimeOffset from its ticks since the year 1, UTC."""
    return _described("datetime-offset", values.long(ticks))


def time_span(ticks: int) -> Value:
    """Return a TimeSpan from its ticks."""
    return _described("timespan", values.long(ticks))


def decimal(number: Decimal) -> Value:
    """Return a decimal; a ValueError for one that 34 digits do not hold."""
    return decimal_value("decimal128", number)


def single(number: float) -> Value:
    """Return a float, rounded to its 32 bits."""
    return values.float32(struct.unpack(">f", struct.pack(">f", number))[0])


EXAMPLES: Mapping[str, tuple[Value, ...]] = {
    "null": (NULL,),
    "bool": (values.TRUE, values.FALSE),
    "byte": tuple(map(values.ubyte, (0, 7, 255))),
    "sbyte": tuple(map(values.byte, (-128, 0, 127))),
    "char": tuple(map(values.char, ("A", "é", "中"))),
    "short": tuple(map(values.short, (-32768, 300, 32767))),
    "ushort": tuple(map(values.ushort, (0, 300, 65535))),
    "int": tuple(map(values.int_, (-(2**31), 1, 2**31 - 1))),
    "uint": tuple(map(values.uint, (0, 200, 2**32 - 1))),
    "long": tuple(map(values.long, (-(2**63), 1, 2**63 - 1))),
    "ulong": tuple(map(values.ulong, (0, 200, 2**64 - 1))),
    "float": tuple(map(single, (0.1, -0.0, 3.4028234663852886e38))),
    "double": tuple(map(values.double, (0.1, 5e-324, -1.7976931348623157e308))),
    "decimal": tuple(
        decimal(Decimal(text)) for text in ("12.50", "-79228162514264337593543950335", "0.0000000000000000000000000001")
    ),
    "guid": tuple(map(values.uuid, (UUID(int=0), UUID("6f2d3b62-0a63-4c0c-9a0f-6b8f2c2f1e11")))),
    "string": tuple(map(values.string, ("", "plain", "Grüße, 世界 🚌", "long " * 60))),
    "uri": tuple(map(uri, ("https://example.com/orders?id=7#top", "sb://west.example.com/queue"))),
    # Exact until the year 2426; after that Azure's host may lose a millisecond (docs/fidelity.md).
    "datetime": tuple(map(values.timestamp, (0, 1_700_000_000_123, 4_102_444_800_001))),
    "datetimeoffset": tuple(map(date_time_offset, (0, 638_000_000_000_000_001))),
    "timespan": tuple(map(time_span, (-1, 0, 2**63 - 1))),
}
"""
Values of every type: extremes, and values that are often changed by mistake.

No DateTime before 1970, which Azure's Functions host sets to 1970; no char or decimal that .NET's types do not hold.
"""


def sdk_form(value: Value) -> object:
    """
    Return what azure-servicebus takes for *value*: plain Python, or its way to name a type, {"TYPE": …, "VALUE": …}.

    Raises ValueError for a char, which the SDK would silently send as a map.
    """
    payload = value.payload
    if value.kind in ("null", "boolean", "string", "uuid"):
        return payload
    if value.kind == "char":
        raise ValueError("azure-servicebus cannot encode an AMQP char")
    if isinstance(payload, Described):
        return (sdk_form(payload.descriptor), sdk_form(payload.value))
    if isinstance(payload, bytes):
        return decimal_of(value.kind, payload)
    return {"TYPE": value.kind.upper(), "VALUE": payload}


def property_value(content: object) -> Value:
    """
    Return the property for a JSON value: a scalar, or {"type": NAME, "value": …} for a type JSON lacks.

    Raises ValueError with the reason.
    """
    match content:
        case None:
            return NULL
        case bool():
            return values.boolean(content)
        case int():
            return values.int_(content) if -(2**31) <= content < 2**31 else values.long(content)
        case float():
            return values.double(content)
        case str():
            return values.string(content)
        case {"type": str(name), "value": given, **rest} if not rest:
            if name not in _READERS:
                raise ValueError(f"type {name!r}, expected one of {', '.join(_READERS)}")
            kind, read = _READERS[name]
            if not isinstance(given, kind) or (isinstance(given, bool) and kind is not bool):
                raise ValueError(f"value {given!r} of type {name}, expected {_EXPECTED[kind]}")
            try:
                return read(given)
            except (ValueError, InvalidOperation, OverflowError, struct.error) as error:
                raise ValueError(f"value {given!r} cannot be sent as {name}: {error}") from error
    raise ValueError('expected a scalar, or an object with "type" and "value"')


def _char(text: str) -> Value:
    if text > "\uffff":
        raise ValueError("System.Char has no characters beyond U+FFFF")
    return values.char(text)


def _decimal(text: str) -> Value:
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    is_held = isinstance(exponent, int) and -_NET_DECIMAL_PLACES <= exponent <= 0
    if not is_held or int("".join(map(str, digits))) >= 2**_NET_DECIMAL_BITS:
        raise ValueError("System.Decimal has 96 bits and 28 decimal places")
    return decimal(number)


def _milliseconds(text: str) -> Value:
    moment = _moment(text)
    if moment < _EPOCH:
        raise ValueError("Azure's Functions host sets a DateTime before 1970 to 1970")
    return values.timestamp((moment - _EPOCH) // _MILLISECOND)


def _ticks(text: str) -> Value:
    return date_time_offset((_moment(text) - _YEAR_ONE) // timedelta(microseconds=1) * _TICKS_PER_MICROSECOND)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


type _Kind = type | tuple[type, ...]

_NUMBER = (int, float)
_EXPECTED: Mapping[_Kind, str] = {bool: "true or false", int: "a whole number", str: "text", _NUMBER: "a number"}
_READERS: Mapping[str, tuple[_Kind, Callable[..., Value]]] = {
    "bool": (bool, values.boolean),
    "byte": (int, values.ubyte),
    "sbyte": (int, values.byte),
    "char": (str, _char),
    "short": (int, values.short),
    "ushort": (int, values.ushort),
    "int": (int, values.int_),
    "uint": (int, values.uint),
    "long": (int, values.long),
    "ulong": (int, values.ulong),
    "float": (_NUMBER, single),
    "double": (_NUMBER, lambda number: values.double(float(number))),
    "decimal": (str, _decimal),
    "guid": (str, lambda text: values.uuid(UUID(text))),
    "string": (str, values.string),
    "uri": (str, uri),
    "datetime": (str, _milliseconds),
    "datetimeoffset": (str, _ticks),
    "timespan": (_NUMBER, lambda number: time_span(round(Decimal(str(number)) * 1_000_000 * _TICKS_PER_MICROSECOND))),
}
