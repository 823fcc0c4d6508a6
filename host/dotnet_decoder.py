# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""
The decoding of one AMQP value as Azure's host does it.

1. The sizes of lists, maps and arrays are ignored: they end after as many items as their count.
2. The types of AMQP's frames are recognized in the values of map entries and in value bodies, and nowhere else.

Source: AmqpEncoding, AmqpCodec and the encodings of Azure/azure-amqp, Microsoft.Azure.Amqp/Amqp, tag v2.7.1.
"""

from collections.abc import Callable

from host.dotnet_simple import SIMPLE, SimpleReader, content_of, short, unknown
from host.dotnet_values import (
    NULL,
    Array,
    BinaryKey,
    CannotReceive,
    Described,
    List,
    Map,
    Object,
    ObjectArray,
)

_KNOWN_CODES = frozenset(
    bytes((0x53, code))
    for code in (
        *range(0x10, 0x19),
        0x1D,
        *range(0x23, 0x2A),
        *range(0x2B, 0x2F),
        *range(0x30, 0x35),
        *range(0x40, 0x45),
    )
)
_KNOWN_NAMES = frozenset(
    b"\xa3%c%b" % (len(name) + 10, b"amqp:" + name + b":list")
    for name in (
        *(b"open", b"close", b"begin", b"end", b"attach", b"detach", b"transfer", b"disposition", b"flow"),
        *(b"coordinator", b"declare", b"declared", b"discharge", b"transactional-state"),
        *(b"sasl-mechanisms", b"sasl-init", b"sasl-challenge", b"sasl-response", b"sasl-outcome"),
        *(b"error", b"source", b"target", b"received", b"accepted", b"released", b"rejected", b"modified"),
        *(b"delete-on-close", b"delete-on-no-links", b"delete-on-no-messages", b"delete-on-no-links-or-messages"),
    )
)
_KNOWN = _KNOWN_CODES | _KNOWN_NAMES

type Reader = Callable[[bytes, int, int], tuple[Object, int]]


def decode(buffer: bytes, position: int, end: int) -> tuple[Object, int]:
    """Return the object at *position* and where the next one starts; CannotReceive where .NET fails."""
    if position >= end:
        raise short(end)
    return READERS[buffer[position]](buffer, position + 1, end)


def decode_known(buffer: bytes, position: int, end: int) -> tuple[Object, int]:
    """Return the object at *position*, which may be one of the types of AMQP's frames."""
    if position >= end:
        raise short(end)
    if buffer[position]:
        return READERS[buffer[position]](buffer, position + 1, end)
    descriptor, position = decode_known(buffer, position + 1, end)
    value, position = decode_known(buffer, position, end)
    return Described(descriptor, value, is_known=descriptor in _KNOWN), position


def decode_entries(buffer: bytes, position: int, end: int, count: int) -> tuple[dict[Object, Object], int]:
    """Return the entries of a map of *count* keys and values; with an odd count the last key has a value too."""
    entries: dict[Object, Object] = {}
    while count > 0:
        key, position = decode(buffer, position, end)
        value, position = decode_known(buffer, position, end)
        if isinstance(key, bytes) and key[0] in _BINARIES and key != _EMPTY_BINARY:
            key = BinaryKey(key)
        entries[key] = value
        count -= 2
    return entries, position


def _described(buffer: bytes, position: int, end: int) -> tuple[Object, int]:
    descriptor, position = decode(buffer, position, end)
    value, position = decode(buffer, position, end)
    return Described(descriptor, value), position


def _count(buffer: bytes, position: int, end: int, width: int) -> tuple[int, int]:
    """Return the count of a compound, after its size, and where its content starts; a negative one is negative."""
    start = position + 2 * width
    if start > end:
        raise short(end)
    return int.from_bytes(buffer[position + width : start], signed=width > 1), start


def _empty_list(_buffer: bytes, position: int, _end: int) -> tuple[Object, int]:
    return List([]), position


def _list(width: int) -> Reader:
    def read(buffer: bytes, position: int, end: int) -> tuple[Object, int]:
        count, position = _count(buffer, position, end, width)
        items, position = decode_items(buffer, position, end, count)
        return List(items), position

    return read


def decode_items(buffer: bytes, position: int, end: int, count: int) -> tuple[list[Object], int]:
    """Return *count* items of a list."""
    items: list[Object] = []
    while count > 0:
        item, position = decode(buffer, position, end)
        items.append(item)
        count -= 1
    return items, position


def _map(width: int) -> Reader:
    def read(buffer: bytes, position: int, end: int) -> tuple[Object, int]:
        count, position = _count(buffer, position, end, width)
        entries, position = decode_entries(buffer, position, end, count)
        return Map(entries), position

    return read


def _array(width: int) -> Reader:
    def read(buffer: bytes, position: int, end: int) -> tuple[Object, int]:
        count, position = _count(buffer, position, end, width)
        if count < 0:
            raise CannotReceive(f"an array of {count} elements")
        if position >= end:
            raise short(end)
        code = buffer[position]
        position += 1
        if code in _ELEMENT_WIDTHS:
            stop = position + count * _ELEMENT_WIDTHS[code]
            if stop > end:
                raise short(end)
            return Array(code, count, buffer[position:stop]), stop
        if code in _ELEMENTS:
            full_code, read_element = _ELEMENTS[code]
            elements: list[bytes] = []
            for _ in range(count):
                element, position = read_element(buffer, position, end)
                elements.append(element)
            return Array(full_code, count, b"".join(elements)), position
        if code in _OBJECTS:
            full_code, type_name = _OBJECTS[code]
            items: list[Object] = []
            for _ in range(count):
                item, position = READERS[code](buffer, position, end)
                items.append(item)
            return ObjectArray(full_code, type_name, items), position
        if code == 0x00:
            return _described_array(buffer, position, end, count)
        raise CannotReceive(f"an array of elements with format code 0x{code:02x}")

    return read


def _described_array(buffer: bytes, position: int, end: int, count: int) -> tuple[Object, int]:
    descriptor, position = decode(buffer, position, end)
    if position >= end:
        raise short(end)
    code = buffer[position]
    position += 2 if code & 0x0F == 0x0F else 1
    items: list[Object] = []
    for _ in range(count):
        if code == 0x40 or READERS[code] is unknown or (descriptor == NULL and code != 0x00):
            raise CannotReceive(f"an array of described elements with format code 0x{code:02x}")
        start = position
        item, position = READERS[code](buffer, position, end)
        items.append(item if descriptor == NULL else Described(descriptor, item))
        if position == start:  # elements without bytes: all alike, and nobody can receive or bind them
            break
    return ObjectArray(0x00, "Microsoft.Azure.Amqp.Encoding.DescribedType", items), position


def _element_bool(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    if position >= end:
        raise short(end)
    return (b"\x01" if buffer[position] else b"\x00"), position + 1


def _element_small(width: int, *, signed: bool) -> SimpleReader:
    def read(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
        if position >= end:
            raise short(end)
        number = int.from_bytes(buffer[position : position + 1], signed=signed)
        return number.to_bytes(width, signed=signed), position + 1

    return read


def _element_char(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    if position + 4 > end:
        raise short(end)
    point = int.from_bytes(buffer[position : position + 4])
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise CannotReceive("a char that is no character of Unicode")
    if point > 0xFFFF:  # .NET keeps the first half of the pair
        point = 0xD800 + (point - 0x10000 >> 10)
    return point.to_bytes(4), position + 4


def _element_timestamp(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
    value, position = SIMPLE[0x83](buffer, position, end)
    return value[1:], position


def _element_variable(code: int) -> SimpleReader:
    def read(buffer: bytes, position: int, end: int) -> tuple[bytes, int]:
        value, position = SIMPLE[code](buffer, position, end)
        content = content_of(value)
        return len(content).to_bytes(4) + content, position

    return read


# Elements that do not change; the others with the format code that .NET writes; lists, maps and arrays.
_ELEMENT_WIDTHS = {
    0x50: 1,
    0x51: 1,
    0x60: 2,
    0x61: 2,
    0x70: 4,
    0x71: 4,
    0x80: 8,
    0x81: 8,
    0x72: 4,
    0x82: 8,
    0x98: 16,
}
_ELEMENTS: dict[int, tuple[int, SimpleReader]] = {
    0x56: (0x56, _element_bool),
    0x52: (0x70, _element_small(4, signed=False)),
    0x53: (0x80, _element_small(8, signed=False)),
    0x54: (0x71, _element_small(4, signed=True)),
    0x55: (0x81, _element_small(8, signed=True)),
    0x73: (0x73, _element_char),
    0x83: (0x83, _element_timestamp),
    **{code: (code | 0x10, _element_variable(code)) for code in (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3)},
}
_OBJECTS = {
    **dict.fromkeys((0xC0, 0xD0), (0xD0, "System.Collections.IList")),
    **dict.fromkeys((0xC1, 0xD1), (0xD1, "Microsoft.Azure.Amqp.Encoding.AmqpMap")),
    **dict.fromkeys((0xE0, 0xF0), (0xD0, "System.Array")),
}
_BINARIES = (0xA0, 0xB0)
_EMPTY_BINARY = b"\xa0\x00"  # one object in .NET, unlike other binaries
_COMPOUND: dict[int, Reader] = {
    0x00: _described,
    0x45: _empty_list,
    0xC0: _list(1),
    0xC1: _map(1),
    0xD0: _list(4),
    0xD1: _map(4),
    0xE0: _array(1),
    0xF0: _array(4),
}
READERS: list[Reader] = [_COMPOUND.get(code) or SIMPLE.get(code, unknown) for code in range(256)]
