"""Values of single Protocol Buffers fields, checked before the library encodes them, and numbers in ProtoJSON."""

import math
import re
import struct
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

from shared.codecs.plain import Plain, as_text

_BITS: Mapping[int, tuple[int, int]] = {
    **dict.fromkeys((Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32), (-(2**31), 2**31 - 1)),
    **dict.fromkeys((Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64), (-(2**63), 2**63 - 1)),
    **dict.fromkeys((Field.TYPE_UINT32, Field.TYPE_FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys((Field.TYPE_UINT64, Field.TYPE_FIXED64), (0, 2**64 - 1)),
}
_LARGEST_FLOAT = 3.4028234663852886e38
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LONGEST_INTEGER, _LONGEST_NUMBER = 40, 1100
_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,6})?")
_SHORTEST, _LONGEST = 6, 9

# The library makes its types at run time.
type Descriptor = Any


class Mismatch(Exception):
    """A value that does not match its field."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path


def key_of(field: Descriptor, text: str) -> object:
    """Return the key of a map entry; raises Mismatch."""
    if field.type == Field.TYPE_BOOL:
        if text not in {"true", "false"}:
            raise Mismatch("has a key that is neither true nor false")
        return text == "true"
    return scalar(field, text)


def scalar(field: Descriptor, value: Plain) -> object:
    """Return *value* as the field needs it; raises Mismatch."""
    kind = field.type
    if kind in _BITS:
        return _integer(value, *_BITS[kind])
    match kind:
        case Field.TYPE_STRING:
            return _text(value)
        case Field.TYPE_BOOL:
            if type(value) is not bool:
                raise Mismatch("got another kind of value, expected a boolean")
            return value
        case Field.TYPE_BYTES:
            return bytes_of(value)
        case Field.TYPE_ENUM:
            return _enum(field, value)
    return _number(value, single=kind == Field.TYPE_FLOAT)


def _integer(value: Plain, least: int, most: int) -> int:
    if type(value) is str and len(value) <= _LONGEST_INTEGER and _WHOLE.fullmatch(value):
        value = int(value)
    elif type(value) is str and (number := _decimal(value)) is not None and _is_whole(number):
        value = int(number)
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise Mismatch("got another kind of value, expected a whole number")
    if not least <= value <= most:
        raise Mismatch(f"got a number out of range, expected {least} to {most}")
    return value


def _number(value: Plain, *, single: bool) -> float:
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) is str and (number := _decimal(value)) is not None:
        made = float(number)
        # As for a number in JSON: one that has more digits than a double, or is out of its range, would change.
        value = made if math.isfinite(made) and Decimal(repr(made)) == number else value
    if type(value) not in {int, float}:
        raise Mismatch("got another kind of value, or more digits than a double has, expected a number")
    try:
        made = float(value)
    except OverflowError:
        made = math.inf
    if type(value) is int and made != value:
        raise Mismatch("got a number with more digits than a double has")
    if single and _LARGEST_FLOAT < abs(made) < math.inf:
        raise Mismatch("got a number out of range, expected one of 32 bits")
    return made


def _decimal(text: str) -> Decimal | None:
    """Return the number in a text that is written as JSON writes numbers, None for any other text."""
    return Decimal(text) if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text) else None


def _is_whole(number: Decimal) -> bool:
    # The first digit tells how long it is, without making it an integer.
    return number.adjusted() < _LONGEST_INTEGER and number == number.to_integral_value()


def _text(value: Plain) -> str:
    if hasattr(value, "isoformat"):
        return as_text(value)
    if type(value) is not str:
        raise Mismatch("got another kind of value, expected text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Mismatch("got a text with half a character (a lone surrogate)") from error
    return value


def bytes_of(value: Plain) -> bytes:
    """Return bytes, or those of a Base64 text; raises Mismatch."""
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise Mismatch("got another kind of value, expected bytes, or their Base64")
    try:
        # ProtoJSON: either alphabet, with or without padding.
        padding = "=" * (-len(value) % 4) if not value.endswith("=") else ""
        return b64decode((value + padding).replace("-", "+").replace("_", "/"), validate=True)
    except (NotBase64, ValueError) as error:
        raise Mismatch("got a text that is not Base64, expected bytes") from error


def _enum(field: Descriptor, value: Plain) -> int:
    if type(value) is int or type(value) is float:
        return _integer(value, *_BITS[Field.TYPE_INT32])
    known = field.enum_type.values_by_name.get(value) if type(value) is str else None
    if known is None:
        raise Mismatch("got another kind of value, expected a name of the enum")
    return int(known.number)


def shortest(value: float) -> float:
    """Return the double with the fewest digits that has the same 32 bits."""
    packed = struct.pack("f", value)
    for digits in range(_SHORTEST, _LONGEST):
        short = float(f"{value:.{digits}g}")
        if abs(short) <= _LARGEST_FLOAT and struct.pack("f", short) == packed:
            return short
    return value


def not_finite_text(value: float) -> str:
    """Return the text of a NaN or an infinity in ProtoJSON."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
