# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""
The text of .NET objects that are the keys of maps: `ToString` under the invariant culture.

Sources: MapKey, AmqpMap and DescribedType of Azure/azure-amqp, tag v2.7.1; measured for all types but float, double and
the arrays of rarer types.
"""

import math
import struct
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from host import dotnet_decimal
from host.dotnet_simple import content_of
from host.dotnet_values import MAX_TIMESTAMP, NULL, Array, BinaryKey, Described, List, Map, Object

_BINARY = "System.ArraySegment`1[System.Byte]"
_ELEMENTS = {
    0x56: "System.Boolean",
    0x50: "System.Byte",
    0x51: "System.SByte",
    0x60: "System.UInt16",
    0x61: "System.Int16",
    0x70: "System.UInt32",
    0x71: "System.Int32",
    0x80: "System.UInt64",
    0x81: "System.Int64",
    0x72: "System.Single",
    0x82: "System.Double",
    0x73: "System.Char",
    0x83: "System.DateTime",
    0x98: "System.Guid",
    0xB0: _BINARY,
    0xB1: "System.String",
    0xB3: "Microsoft.Azure.Amqp.Encoding.AmqpSymbol",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def key_text(key: Object) -> str:
    """Return the text of a key."""
    return "<null>" if key == NULL else text_of(key)


def text_of(value: Object) -> str:
    """Return the text of an object, empty for null."""
    if isinstance(value, bytes):
        return _simple(value)
    if isinstance(value, BinaryKey):
        return _BINARY
    if isinstance(value, List):
        return "System.Collections.Generic.List`1[System.Object]"
    if isinstance(value, Map):
        return f"[{','.join(f'{key_text(key)}:{text_of(item)}' for key, item in value.entries.items())}]"
    if isinstance(value, Described):
        return text_of(value.value)
    if isinstance(value, Array):
        return f"{_ELEMENTS[value.code]}[]"
    return f"{value.type_name}[]"


def _simple(value: bytes) -> str:  # noqa: PLR0911 - one line for each kind of type
    code, content = value[0], value[1:]
    if code >= 0xA0:
        return _BINARY if code in (0xA0, 0xB0) else content_of(value).decode()
    if code in (0x43, 0x44, 0x50, 0x52, 0x53, 0x60, 0x70, 0x80):
        return str(int.from_bytes(content))
    if code in (0x51, 0x54, 0x55, 0x61, 0x71, 0x81):
        return str(int.from_bytes(content, signed=True))
    if code == 0x73:
        return chr(int.from_bytes(content))
    if code == 0x83:
        moment = _EPOCH + timedelta(milliseconds=min(int.from_bytes(content), MAX_TIMESTAMP))
        return f"{moment:%m/%d/}{moment.year:04d}{moment: %H:%M:%S}"
    if code == 0x94:
        return dotnet_decimal.text(value)
    if code == 0x98:
        return str(uuid.UUID(bytes=content))
    if code == 0x72:
        return _single(struct.unpack(">f", content)[0])
    if code == 0x82:
        number = struct.unpack(">d", content)[0]
        return _float(number, 15, repr(number))
    return {0x40: "", 0x41: "True", 0x42: "False"}[code]


def _single(number: float) -> str:
    if not math.isfinite(number):
        return _float(number, 7, "")
    texts = (f"{number:.{precision}g}" for precision in range(1, 10))
    return _float(
        number, 7, next(text for text in texts if struct.pack(">f", float(text)) == struct.pack(">f", number))
    )


def _float(number: float, precision: int, shortest: str) -> str:
    """Return *shortest*, the shortest text that reads back the same, as .NET formats it."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    minus = "-" if sign else ""
    if number == 0:
        return f"{minus}0"
    if point > max(len(text), precision) or point < -3:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{minus}{text[0]}{fraction}E{point - 1:+03d}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    return f"{minus}{text[:point].ljust(point, '0')}{'.' if text[point:] else ''}{text[point:]}"
