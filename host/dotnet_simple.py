# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""
The decoding of simple types as Azure's host does it, each to the bytes that .NET writes for the object.

Text and binaries may reach beyond the end of their section, up to the end of the message; other values may not.

Source: the encodings of Azure/azure-amqp, Microsoft.Azure.Amqp/Amqp/Encoding, tag v2.7.1.
"""

from collections.abc import Callable

from host.dotnet_decimal import decimal128
from host.dotnet_values import END_OF_TIME, MAX_TICKS, NULL, TICKS, CannotReceive

# Up to this many milliseconds a double holds the ticks exactly.
_EXACT_TIMESTAMP = 14_411_518_807_588
_EXACT_TIMESTAMP_BYTES = _EXACT_TIMESTAMP.to_bytes(8)

type SimpleReader = Callable[[bytes, int, int], tuple[bytes, int]]
"""Read the value whose format code is before the position; the third argument is the end of its section or compound."""


def ticks(milliseconds: int) -> int:
    """Return a timestamp as the ticks of a DateTime since 1970, limited to the range from 1970 to DateTime.MaxValue."""
    return MAX_TICKS if milliseconds >= END_OF_TIME else max(milliseconds, 0) * TICKS


def timestamp(of: int) -> bytes:
    """Return ticks since 1970 as a timestamp; the milliseconds pass through a double."""
    return b"\x83" + int(float(of) / TICKS).to_bytes(8, signed=True)


def binary(content: bytes) -> bytes:
    """Return an encoded binary."""
    return _variable(0xA0, content)


def string(text: bytes) -> bytes:
    """Return UTF-8 text as an encoded string."""
    return _variable(0xA1, text)


def symbol(text: bytes) -> bytes:
    """Return ASCII text as an encoded symbol."""
    return _variable(0xA3, text)


def _variable(short_code: int, content: bytes) -> bytes:
    if len(content) <= 0xFF:
        return b"%c%c%b" % (short_code, len(content), content)
    return b"%c%b%b" % (short_code + 0x10, len(content).to_bytes(4), content)


def content_of(value: bytes) -> bytes:
    """Return the content of an encoded binary, string or symbol."""
    return value[2:] if value[0] < 0xB0 else value[5:]


def short(end: int) -> CannotReceive:
    """Return the error for a value that reaches beyond the end of its section or compound."""
    return CannotReceive(f"malformed AMQP: a value reaches beyond byte {end}, the end of what holds it")


def _constant(value: bytes) -> SimpleReader:
    def read(_buffer: bytes, position: int, _end: int) -> tuple[bytes, int]:
        return value, position

    return read


def _unchanged(width: int) -> SimpleReader:
    def read(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
        stop = position + width
        if stop > end:
            raise short(end)
        return buffer[position - 1 : stop], stop

    return read


def _boolean(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    if position >= end:
        raise short(end)
    return (b"\x41" if buffer[position] else b"\x42"), position + 1


def _integer(width: int, small: bytes, zero: bytes | None = None) -> SimpleReader:
    """Return the reader of an integer, which .NET writes in its short form; only unsigned ones have a *zero*."""
    is_signed = zero is None
    shortest = range(-0x80, 0x80) if is_signed else range(0x100)

    def read(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
        stop = position + width
        if stop > end:
            raise short(end)
        number = int.from_bytes(buffer[position:stop], signed=is_signed)
        if number not in shortest:
            return buffer[position - 1 : stop], stop
        return small + buffer[stop - 1 : stop] if number or zero is None else zero, stop

    return read


def _char(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    if position + 4 > end:
        raise short(end)
    point = int.from_bytes(buffer[position : position + 4])
    if point > 0xFFFF or 0xD800 <= point <= 0xDFFF:
        raise CannotReceive("a char above U+FFFF or half a pair of surrogates, which System.Char cannot hold alone")
    return buffer[position - 1 : position + 4], position + 4


def _timestamp(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    stop = position + 8
    if stop > end:
        raise short(end)
    content = buffer[position:stop]
    if content <= _EXACT_TIMESTAMP_BYTES:
        return b"\x83" + content, stop
    return timestamp(ticks(int.from_bytes(content, signed=True))), stop


def _decimal(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    stop = position + 16
    if stop > end:
        raise short(end)
    try:
        return decimal128(buffer[position:stop]), stop
    except OverflowError as error:
        raise CannotReceive(f"a decimal {error}, which System.Decimal cannot hold") from error


def _sized(width: int, encoded: Callable[[bytes], bytes], kept: Callable[[bytes], bytes] = bytes) -> SimpleReader:
    """Return the reader of a binary or text, of which .NET keeps a part and which it writes in its short form."""

    def read(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
        start = position + width
        if start > end:
            raise short(end)
        stop = start + int.from_bytes(buffer[position:start])
        if stop > len(buffer):
            raise short(len(buffer))
        return encoded(kept(buffer[start:stop])), stop

    return read


def utf8(text: bytes) -> bytes:
    """Return text with U+FFFD for what is not UTF-8."""
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def ascii_text(text: bytes) -> bytes:
    """Return text with a question mark for each byte that is not ASCII."""
    return text if text.isascii() else bytes(byte if byte < 0x80 else 0x3F for byte in text)


def unknown(buffer: bytes, position: int, _end: int) -> tuple[bytes, int]:
    """Raise CannotReceive for a format code that .NET does not read."""
    raise CannotReceive(f"a value of format code 0x{buffer[position - 1]:02x}, which Microsoft.Azure.Amqp cannot read")


SIMPLE: dict[int, SimpleReader] = {
    0x40: _constant(NULL),
    0x41: _constant(b"\x41"),
    0x42: _constant(b"\x42"),
    0x43: _constant(b"\x43"),
    0x44: _constant(b"\x44"),
    0x50: _unchanged(1),
    0x51: _unchanged(1),
    0x52: _integer(1, b"\x52", b"\x43"),
    0x53: _integer(1, b"\x53", b"\x44"),
    0x54: _unchanged(1),
    0x55: _unchanged(1),
    0x56: _boolean,
    0x60: _unchanged(2),
    0x61: _unchanged(2),
    0x70: _integer(4, b"\x52", b"\x43"),
    0x71: _integer(4, b"\x54"),
    0x72: _unchanged(4),
    0x73: _char,
    0x80: _integer(8, b"\x53", b"\x44"),
    0x81: _integer(8, b"\x55"),
    0x82: _unchanged(8),
    0x83: _timestamp,
    0x94: _decimal,
    0x98: _unchanged(16),
    0xA0: _sized(1, binary),
    0xA1: _sized(1, string, utf8),
    0xA3: _sized(1, symbol, ascii_text),
    0xB0: _sized(4, binary),
    0xB1: _sized(4, string, utf8),
    0xB3: _sized(4, symbol, ascii_text),
}
