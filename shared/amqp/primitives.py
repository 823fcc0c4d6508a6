"""
Reading and writing the AMQP 1.0 types that contain no other values.

A reader takes the buffer, the position after the format code, the end and the depth, and returns the value and the
position after it. A writer returns the payload's bytes without the format code; any exception means that the format
code cannot hold the payload.

Source: OASIS AMQP 1.0, part 1, sections 1.2 and 1.6.
"""

import operator
import struct
import sys
import uuid
from collections.abc import Callable
from typing import cast

from shared.amqp.values import Malformed, Payload, Value

type Reader = Callable[[bytes, int, int, int], tuple[Value, int]]
type Writer = Callable[[Payload], bytes]

UINT8 = struct.Struct(">B")
UINT32 = struct.Struct(">I")

ZERO_WIDTH = 0x4  # the upper half of the format codes without content, the lowest of all except 0x00

_FIXED_WIDTHS = {ZERO_WIDTH: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_LENGTHS = dict.fromkeys((0xA, 0xC, 0xE), UINT8) | dict.fromkeys((0xB, 0xD, 0xF), UINT32)

# Named tuples built without their Python-level constructor: this saves 0.14 µs for each value that is decoded.
_new = tuple.__new__


def truncated(what: str, position: int, needed: int, end: int) -> Malformed:
    """Return the error for a value that reaches beyond the end of its container."""
    return Malformed(f"{what} at byte {position}: needs {needed} bytes, the data has {max(end - position, 0)}")


def unassigned(code: int) -> tuple[Reader, Writer]:
    """Return a codec for a format code without a type: its upper half determines its width (1.2, figure 1.3)."""
    category = code >> 4
    if category in _FIXED_WIDTHS:
        return _sized(code, _FIXED_WIDTHS[category], bytes, _bytes)
    if category in _LENGTHS:
        return _variable(code, _LENGTHS[category], bytes, _bytes)

    def refuse(_buffer: bytes, position: int, _end: int, _depth: int) -> tuple[Value, int]:
        raise Malformed(f"format code at byte {position - 1}: 0x{code:02x} is not defined by AMQP 1.0")

    def refuse_payload(_payload: Payload) -> bytes:
        raise TypeError

    return refuse, refuse_payload


def _constant(code: int, payload: Payload) -> tuple[Reader, Writer]:
    value = Value(code, payload)

    def read(_buffer: bytes, position: int, _end: int, _depth: int) -> tuple[Value, int]:
        return value, position

    def write(other: Payload) -> bytes:
        if other != payload:
            raise TypeError
        return b""

    return read, write


def _fixed(code: int, layout: str) -> tuple[Reader, Writer]:
    packer = struct.Struct(">" + layout)
    unpack_from, width = packer.unpack_from, packer.size

    def read(buffer: bytes, position: int, end: int, _depth: int) -> tuple[Value, int]:
        stop = position + width
        if stop > end:
            raise truncated("value", position, width, end)
        return _new(Value, (code, unpack_from(buffer, position)[0])), stop

    return read, packer.pack


def _sized(
    code: int, width: int, load: Callable[[bytes], Payload], dump: Writer, what: str = "value"
) -> tuple[Reader, Writer]:
    """Return the codec of a type of fixed width; *load* raises ValueError for bytes that are none of *what*."""

    def read(buffer: bytes, position: int, end: int, _depth: int) -> tuple[Value, int]:
        stop = position + width
        if stop > end:
            raise truncated(what, position, width, end)
        try:
            return _new(Value, (code, load(buffer[position:stop]))), stop
        except ValueError as error:
            raise Malformed(f"{what} at byte {position}: {error}") from error

    def write(payload: Payload) -> bytes:
        content = dump(payload)
        if len(content) != width:
            raise OverflowError
        return content

    return read, write


def _variable(
    code: int, length: struct.Struct, load: Callable[[bytes], Payload], dump: Writer
) -> tuple[Reader, Writer]:
    unpack_from, width = length.unpack_from, length.size

    def read(buffer: bytes, position: int, end: int, _depth: int) -> tuple[Value, int]:
        start = position + width
        if start > end:
            raise truncated("length", position, width, end)
        stop = start + unpack_from(buffer, position)[0]
        if stop > end:
            raise truncated("value", start, stop - start, end)
        try:
            return _new(Value, (code, load(buffer[start:stop]))), stop
        except UnicodeDecodeError as error:
            raise Malformed(f"text at byte {start}: not valid {error.encoding}") from error

    def write(payload: Payload) -> bytes:
        content = dump(payload)
        return length.pack(len(content)) + content

    return read, write


def _bytes(payload: Payload) -> bytes:
    if not isinstance(payload, bytes):
        raise TypeError
    return payload


# Another payload than text raises TypeError or AttributeError.
_utf8 = cast("Writer", str.encode)
_ascii = cast("Writer", operator.methodcaller("encode", "ascii"))


def _from_ascii(content: bytes) -> str:
    return content.decode("ascii")


def _boolean_of(content: bytes) -> bool:
    if content > b"\x01":
        raise ValueError(f"0x{content.hex()}, expected 0x00 or 0x01")
    return content == b"\x01"


def _boolean(payload: Payload) -> bytes:
    if not isinstance(payload, bool):
        raise TypeError
    return b"\x01" if payload else b"\x00"


def _char_of(content: bytes) -> str:
    point = int.from_bytes(content)
    if point > sys.maxunicode:
        raise ValueError(f"0x{point:x} is not a Unicode code point")
    # .NET sends each half of a surrogate pair as a char, so halves are valid.
    return chr(point)


def _char(payload: Payload) -> bytes:
    if not isinstance(payload, str):
        raise TypeError
    return UINT32.pack(ord(payload))


# A conversion to Python's 64-bit float and back quiets a signalling NaN, so the bits of a NaN are moved by hand.
_NAN_BITS = 0x7F80_0000


def _float_of(content: bytes) -> float:
    bits = int.from_bytes(content)
    if bits & _NAN_BITS == _NAN_BITS and bits & 0x7F_FFFF:
        content = ((bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7F_FFFF) << 29).to_bytes(8)
    number: float = struct.unpack(">f" if len(content) == 4 else ">d", content)[0]
    return number


def _float(payload: Payload) -> bytes:
    if payload != payload:  # noqa: PLR0124 - only a NaN differs from itself
        wide = int.from_bytes(struct.pack(">d", payload))
        return UINT32.pack((wide >> 63) << 31 | _NAN_BITS | (wide >> 29 & 0x7F_FFFF or 1))
    return struct.pack(">f", payload)


_CONSTANTS = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: ()}
_LAYOUTS = {
    0x50: "B",
    0x51: "b",
    0x52: "B",
    0x53: "B",
    0x54: "b",
    0x55: "b",
    0x60: "H",
    0x61: "h",
    0x70: "I",
    0x71: "i",
    0x80: "Q",
    0x81: "q",
    0x82: "d",
    0x83: "q",
}

PRIMITIVES: dict[int, tuple[Reader, Writer]] = {
    **{code: _constant(code, payload) for code, payload in _CONSTANTS.items()},
    **{code: _fixed(code, layout) for code, layout in _LAYOUTS.items()},
    0x56: _sized(0x56, 1, _boolean_of, _boolean, "boolean"),
    0x72: _sized(0x72, 4, _float_of, _float, "float"),
    0x73: _sized(0x73, 4, _char_of, _char, "char"),
    0x74: _sized(0x74, 4, bytes, _bytes),
    0x84: _sized(0x84, 8, bytes, _bytes),
    0x94: _sized(0x94, 16, bytes, _bytes),
    0x98: _sized(0x98, 16, lambda content: uuid.UUID(bytes=content), operator.attrgetter("bytes"), "uuid"),
    0xA0: _variable(0xA0, UINT8, bytes, _bytes),
    0xB0: _variable(0xB0, UINT32, bytes, _bytes),
    0xA1: _variable(0xA1, UINT8, bytes.decode, _utf8),
    0xB1: _variable(0xB1, UINT32, bytes.decode, _utf8),
    0xA3: _variable(0xA3, UINT8, _from_ascii, _ascii),
    0xB3: _variable(0xB3, UINT32, _from_ascii, _ascii),
}
