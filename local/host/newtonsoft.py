"""
JSON as Newtonsoft.Json writes the values of a message in trigger metadata.

Source: Newtonsoft.Json defaults as JsonConvert.SerializeObject uses them (GrpcMessageConversionExtensions.ToRpcDefault,
Azure/azure-functions-host): bytes as base64, NaN and infinities as text, dates in ISO 8601, time spans as text. Numbers
and escapes were measured.
"""

import base64
import json
import math
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from shared.amqp.codec import items_of, pairs_of, plain
from shared.amqp.values import Array, Described, Value

MAX_DATE = "9999-12-31T23:59:59.9999999"
_MAX_MILLISECONDS = 253_402_300_799_999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICKS_AT_EPOCH = 621_355_968_000_000_000


_LINE_ENDS = str.maketrans({character: f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"})
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_NESTED = (float, dict, list, tuple)
_DOUBLE_DIGITS, _SINGLE_DIGITS = 15, 7
_MOST_LEADING_ZEROS = 3


class Single(float):
    """A number of 32 bits, which .NET writes with an exponent from eight digits on."""


def dumps(value: object) -> str:
    """Return JSON without white space; in non-ASCII text only line ends are escaped."""
    if isinstance(value, float):
        return _number(value)
    # Only numbers need more than the standard library, which is ten times as fast.
    if isinstance(value, dict) and any(isinstance(item, _NESTED) for item in value.values()):
        return "{" + ",".join([f"{dumps(str(name))}:{dumps(item)}" for name, item in value.items()]) + "}"
    if isinstance(value, list | tuple) and any(isinstance(item, _NESTED) for item in value):
        return "[" + ",".join([dumps(item) for item in value]) + "]"
    text = _ENCODE(value)
    return text if text.isascii() else text.translate(_LINE_ENDS)


def _number(number: float) -> str:
    """Return a number with a point or an exponent."""
    text = number_text(number)
    return text if "." in text or "E" in text else text + ".0"


def number_text(number: float) -> str:
    """Return a finite number as .NET's ToString does, in the fewest digits that keep its value."""
    sign, digits, exponent = Decimal(float.__repr__(number)).normalize().as_tuple()
    text = "".join(map(str, digits))
    if not isinstance(exponent, int) or text == "0":
        return "-0" if sign else "0"
    place = len(text) + exponent  # of the point within the digits
    longest = max(len(text), _SINGLE_DIGITS if isinstance(number, Single) else _DOUBLE_DIGITS)
    if place > longest or place < -_MOST_LEADING_ZEROS:
        mantissa = text[0] + ("." + text[1:] if len(text) > 1 else "")
        text = f"{mantissa}E{place - 1:+03d}"
    elif place <= 0:
        text = "0." + "0" * -place + text
    elif exponent >= 0:
        text += "0" * exponent
    else:
        text = text[:place] + "." + text[place:]
    return "-" + text if sign else text


def value_as_json(value: Value) -> Any:
    """Return a property value as JSON data, with the losses of Newtonsoft.Json."""
    payload = value.payload
    kind = value.kind
    result: Any = payload
    if kind == "timestamp" and isinstance(payload, int):
        result = date_text(payload) + "Z"
    elif isinstance(payload, float):
        result = _float(payload, single=kind == "float")
    elif kind == "uuid":
        result = str(payload)
    elif kind == "list":
        result = [value_as_json(item) for item in items_of(value)]
    elif kind == "map":
        result = {str(plain(key)): value_as_json(item) for key, item in pairs_of(value)}
    elif isinstance(payload, Array):
        result = [value_as_json(item) for item in payload.items]
    elif isinstance(payload, Described):
        result = _described(payload)
    elif isinstance(payload, bytes):
        result = _decimal(payload) if kind.startswith("decimal") else base64.b64encode(payload).decode()
    return result


@lru_cache(maxsize=1024)
def date_text(milliseconds: int) -> str:
    """Return a DateTime of unspecified kind: no zone, a fraction only if it is not zero."""
    if milliseconds >= _MAX_MILLISECONDS:
        return MAX_DATE
    moment = _EPOCH + timedelta(milliseconds=max(milliseconds, 0))
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{moment.microsecond // 1000:03d}".rstrip("0")
    return f"{moment.year:04d}{text[text.index('-') :]}" + (f".{fraction}" if fraction else "")


def _float(number: float, *, single: bool) -> Any:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if single:  # the shortest text that parses to the same 32 bits
        return Single(
            next(short for digits in range(1, 18) if _as_single(short := float(f"{number:.{digits}g}")) == number)
        )
    return number


def _as_single(number: float) -> float:
    """Return the nearest float of 32 bits; rounding up the largest ones leaves their range."""
    try:
        return float(struct.unpack(">f", struct.pack(">f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _described(described: Described) -> Any:
    name = str(described.descriptor.payload)
    ticks = described.value.payload
    if name == "com.microsoft:timespan" and isinstance(ticks, int):
        return _timespan(ticks)
    if name == "com.microsoft:datetime-offset" and isinstance(ticks, int):
        return date_text((ticks - _TICKS_AT_EPOCH) // 10_000) + "+00:00"
    return value_as_json(described.value)


def _timespan(ticks: int) -> str:
    seconds, fraction = divmod(abs(ticks), 10_000_000)
    days, seconds = divmod(seconds, 86_400)
    text = f"{days}." if days else ""
    text += f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return ("-" if ticks < 0 else "") + text + (f".{fraction:07d}" if fraction else "")


def _decimal(payload: bytes) -> float:
    bits = int.from_bytes(payload)
    layouts = {4: (101, 23), 8: (398, 53), 16: (6176, 113)}
    bias, significand_bits = layouts[len(payload)]
    exponent = (bits >> significand_bits & (2 ** (8 * len(payload) - 1 - significand_bits) - 1)) - bias
    number = (bits & (2**significand_bits - 1)) * (-1 if bits >> (8 * len(payload) - 1) else 1)
    # Json.NET gives every decimal a point, and so does Python every float.
    return float(number * 10**exponent if exponent >= 0 else number / 10**-exponent)


def rows(values: Sequence[Any]) -> str:
    """Return one JSON array for the values of a batch."""
    return dumps(list(values))
