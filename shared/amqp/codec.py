"""
Decoding and encoding AMQP 1.0 values.

1. A valid value encodes to the same bytes again: format codes are kept, map entries keep their order.
2. Decoding anything else raises `Malformed` and no other error.
3. Work and memory are bounded by the length of the input: nesting is limited, and so are the items of an array of a
   zero-width type.

4. A map with the same key twice is malformed (section 1.6.23): one reader takes the first value and another the last.
   Strings and symbols with the same text are the same key, because most readers see only the text.

Source: OASIS AMQP 1.0, part 1, sections 1.2 and 1.6.
"""

import functools
import struct
from typing import cast

from shared.amqp.primitives import PRIMITIVES, UINT8, UINT32, ZERO_WIDTH, Reader, Writer, truncated, unassigned
from shared.amqp.values import Array, Described, Malformed, Payload, Value

MAX_DEPTH = 64  # as in the .NET and Python SDKs, so that everything they can read is accepted
MAX_ZERO_WIDTH_ITEMS = 32


def decode(buffer: bytes, position: int = 0, end: int | None = None, depth: int = 0) -> tuple[Value, int]:
    """Return the value that starts at *position* and the position after it; it must not reach beyond *end*."""
    if end is None:
        end = len(buffer)
    if position >= end:
        raise Malformed(f"value at byte {position}: the data ends there, expected a format code")
    return _READERS[buffer[position]](buffer, position + 1, end, depth)


def decode_all(buffer: bytes) -> Value:
    """Return the one value that fills the whole of *buffer*."""
    value, position = decode(buffer)
    if position != len(buffer):
        raise Malformed(f"value: {len(buffer) - position} bytes are left after it, expected none")
    return value


def encode(value: Value) -> bytes:
    """Return the value's bytes; a payload that its format code cannot hold is a ValueError."""
    code, payload = value
    try:
        return _CONSTRUCTORS[code] + _WRITERS[code](payload)
    except (struct.error, OverflowError, AttributeError, TypeError, UnicodeEncodeError) as error:
        raise ValueError(f"AMQP format code 0x{code:02x} cannot hold this {type(payload).__name__}") from error


def plain(value: Value) -> object:
    """
    Return the value as plain Python data (lists, dicts, numbers, text), without AMQP types and descriptors.

    A map's key that is a list, a map or an array stays a Value, because only that is hashable. Raises Malformed for a
    map in which two keys have the same plain value.
    """
    payload = value.payload
    if not isinstance(payload, tuple):
        return payload
    if isinstance(payload, Described):
        return plain(payload.value)
    if isinstance(payload, Array):
        return [plain(item) for item in payload.items]
    if value.kind == "map":
        pairs = pairs_of(value)
        collected = {_plain_key(key): plain(item) for key, item in pairs}
        if len(collected) < len(pairs):
            raise Malformed("map: keys of different types have the same plain value, expected different values")
        return collected
    return [plain(item) for item in items_of(value)]


def _plain_key(value: Value) -> object:
    key = plain(value)
    return value if isinstance(key, list | dict) else key


def comparable(key: Value) -> tuple[str, Payload]:
    """Return what is the same for two encodings of one key of a map."""
    kind = key.kind
    return "string" if kind == "symbol" else kind, key.payload


def items_of(value: Value) -> tuple[Value, ...]:
    """Return the items of a list; anything else is Malformed."""
    if value.kind != "list":
        raise Malformed(f"got a {value.kind}, expected a list")
    return cast("tuple[Value, ...]", value.payload)


def pairs_of(value: Value) -> tuple[tuple[Value, Value], ...]:
    """Return the pairs of a map in their order; anything else is Malformed."""
    if value.kind != "map":
        raise Malformed(f"got a {value.kind}, expected a map")
    return cast("tuple[tuple[Value, Value], ...]", value.payload)


def _deeper(position: int, depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise Malformed(f"value at byte {position}: nested more than {MAX_DEPTH} levels deep")
    return depth + 1


def _read_described(buffer: bytes, position: int, end: int, depth: int) -> tuple[Value, int]:
    depth = _deeper(position, depth)
    descriptor, position = decode(buffer, position, end, depth)
    value, position = decode(buffer, position, end, depth)
    return Value(0x00, Described(descriptor, value)), position


def _write_described(payload: Payload) -> bytes:
    if not isinstance(payload, Described):
        raise TypeError
    return encode(payload.descriptor) + encode(payload.value)


def _extent(buffer: bytes, position: int, end: int, length: struct.Struct) -> tuple[int, int, int]:
    """Return the count of a compound or array, where its content starts and where it stops."""
    width = length.size
    start = position + 2 * width
    if start > end:
        raise truncated("size and count", position, 2 * width, end)
    size = length.unpack_from(buffer, position)[0]
    count = length.unpack_from(buffer, position + width)[0]
    stop = position + width + size
    if size < width or stop > end:
        raise Malformed(f"size at byte {position}: {size} bytes, expected {width} to {end - position - width}")
    return count, start, stop


def _joined(length: struct.Struct, count: int, content: bytes) -> bytes:
    return length.pack(len(content) + length.size) + length.pack(count) + content


def _compound(code: int, length: struct.Struct, *, paired: bool) -> tuple[Reader, Writer]:
    def read(buffer: bytes, position: int, end: int, depth: int) -> tuple[Value, int]:
        count, start, stop = _extent(buffer, position, end, length)
        if count > stop - start or (paired and count % 2):
            expected = f"an even number up to {stop - start}" if paired else f"at most {stop - start}"
            raise Malformed(f"count at byte {position}: {count}, expected {expected}")
        depth = _deeper(position, depth)
        items = []
        position = start
        for _ in range(count):
            item, position = decode(buffer, position, stop, depth)
            items.append(item)
        if position != stop:
            raise Malformed(
                f"compound at byte {start}: its {count} values end at byte {position}, its size at byte {stop}"
            )
        if not paired:
            return Value(code, tuple(items)), stop
        keys = items[::2]
        if count > 2 and len(set(map(comparable, keys))) < len(keys):
            raise Malformed(f"map at byte {start}: two entries have the same key, expected each key once")
        return Value(code, tuple(zip(keys, items[1::2], strict=True))), stop

    def write(payload: Payload) -> bytes:
        if not isinstance(payload, tuple):
            raise TypeError
        if paired:
            pairs = cast("tuple[tuple[Value, Value], ...]", payload)
            content = [encode(item) for key, value in pairs for item in (key, value)]
        else:
            content = [encode(item) for item in cast("tuple[Value, ...]", payload)]
        return _joined(length, len(content), b"".join(content))

    return read, write


def _read_constructor(buffer: bytes, position: int, stop: int, depth: int) -> tuple[tuple[Value, ...], int, int]:
    """Return the descriptors and the format code that the items of an array share, and where the items start."""
    descriptors: list[Value] = []
    while position < stop and buffer[position] == 0x00:
        _deeper(position, len(descriptors))
        descriptor, position = decode(buffer, position + 1, stop, depth)
        descriptors.append(descriptor)
    if position >= stop:
        raise truncated("array constructor", position, 1, stop)
    code = buffer[position]
    if code >> 4 < ZERO_WIDTH:
        raise Malformed(f"format code at byte {position}: 0x{code:02x} is not defined by AMQP 1.0")
    return tuple(descriptors), code, position + 1


def _array(array_code: int, length: struct.Struct) -> tuple[Reader, Writer]:
    def read(buffer: bytes, position: int, end: int, depth: int) -> tuple[Value, int]:
        count, start, stop = _extent(buffer, position, end, length)
        depth = _deeper(position, depth)
        if count == 0 and start == stop:
            return Value(array_code, Array(None, (), ())), stop
        descriptors, code, position = _read_constructor(buffer, start, stop, depth)
        limit = MAX_ZERO_WIDTH_ITEMS if code >> 4 == ZERO_WIDTH else stop - position
        if count > limit:
            raise Malformed(f"array at byte {start}: {count} items, expected at most {limit}")
        read_item = _READERS[code]
        items = []
        for _ in range(count):
            item, position = read_item(buffer, position, stop, depth)
            items.append(item)
        if position != stop:
            raise Malformed(f"array at byte {start}: its {count} items end at byte {position}, its size at byte {stop}")
        return Value(array_code, Array(code, descriptors, tuple(items))), stop

    return read, functools.partial(_write_array, length)


def _write_array(length: struct.Struct, payload: Payload) -> bytes:
    if not isinstance(payload, Array):
        raise TypeError
    code, descriptors, items = payload
    if code == 0x00 or any(item.code != code for item in items):
        raise TypeError
    content = [b"\x00" + encode(descriptor) for descriptor in descriptors]
    if code is not None:
        write_item = _WRITERS[code]
        content.append(_CONSTRUCTORS[code])
        content += [write_item(item.payload) for item in items]
    return _joined(length, len(items), b"".join(content))


_CODECS = {
    **{code: unassigned(code) for code in range(256)},
    **PRIMITIVES,
    0x00: (_read_described, _write_described),
    0xC0: _compound(0xC0, UINT8, paired=False),
    0xC1: _compound(0xC1, UINT8, paired=True),
    0xD0: _compound(0xD0, UINT32, paired=False),
    0xD1: _compound(0xD1, UINT32, paired=True),
    0xE0: _array(0xE0, UINT8),
    0xF0: _array(0xF0, UINT32),
}
_READERS = [_CODECS[code][0] for code in range(256)]
_WRITERS = [_CODECS[code][1] for code in range(256)]
_CONSTRUCTORS = [UINT8.pack(code) for code in range(256)]
