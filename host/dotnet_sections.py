# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""
The sections of a message as Azure's host reads them.

Sections may come in any order and repeatedly: the last one counts, but data and sequences are collected. A value body
extends to the end of the message, and the bytes after the value are the footer. A list or map section ends at its size;
fields and entries beyond its count are ignored.

Source: AmqpMessageReader (Azure/azure-amqp, Microsoft.Azure.Amqp/Amqp/AmqpMessage.cs), Header and Properties
(…/Framing), tag v2.7.1.
"""

import uuid
from collections.abc import Callable
from typing import cast

from host.dotnet_decoder import READERS, Reader, decode_entries, decode_items, decode_known
from host.dotnet_simple import content_of, string, ticks
from host.dotnet_values import NULL, CannotReceive, Object
from shared.amqp import sections

_NAMES = {
    b"amqp:header:list": 0x70,
    b"amqp:delivery-annotations:map": 0x71,
    b"amqp:message-annotations:map": 0x72,
    b"amqp:properties:list": 0x73,
    b"amqp:application-properties:map": 0x74,
    b"amqp:data:binary": 0x75,
    b"amqp:amqp-sequence:list": 0x76,
    b"amqp:amqp-value:*": 0x77,
    b"amqp:footer:map": 0x78,
}
_MAX_INT = 0x7FFFFFFF  # as a length, .NET takes it for "as much as there is"
_EMPTY_LIST, _LIST, _MAP = 0x45, 0xC0, 0xC1

type Field = bytes | int | None
type _FieldReader = Callable[[bytes, int, int], tuple[Field, int]]
type _Readers = dict[int, _FieldReader]


class Received:
    """
    The decoded sections; times in ticks since 1970, every other field as encoded, NULL where it is missing.

    *properties_by_section* has the maps as the SDK's message has them.
    """

    __slots__ = ("data", "header", "maps", "properties", "properties_by_section", "sequences", "value")

    def __init__(self) -> None:
        """Start without any section."""
        self.header: list[bytes] = [NULL] * 5
        self.properties: list[Field] = list(_NO_PROPERTIES)
        self.maps: dict[int, dict[Object, Object]] = {}
        self.properties_by_section: dict[int, dict[bytes, bytes]] = {}
        self.data: list[bytes] | None = None
        self.sequences: list[list[Object]] | None = None
        self.value: Object = NULL


def read(payload: bytes) -> Received:
    """Return the sections of a message; CannotReceive where .NET fails to decode it."""
    message = Received()
    position, end = 0, len(payload)
    while position < end:
        if payload[position]:
            raise CannotReceive(f"malformed AMQP: no section starts at byte {position}")
        if payload[position + 1 : position + 2] == b"\x53" and position + 2 < end:
            number, position = payload[position + 2], position + 3
        else:
            number, position = _descriptor(payload, position + 1)
        reader = _SECTIONS.get(number)
        if reader is None:
            raise CannotReceive(f"malformed AMQP: the section before byte {position} has number {number}")
        position = reader(message, payload, position, number)
    return message


def _descriptor(payload: bytes, position: int) -> tuple[int, int]:
    code, position = _format_code(payload, position)
    if code == 0x80:
        start, position = _take(payload, position, 8)
        return int.from_bytes(payload[start:position]), position
    if code in (0xA3, 0xB3):
        length, position = _integer(payload, position, is_short=code == 0xA3)
        start, position = _take(payload, position, length)
        return _NAMES.get(payload[start:position], 0), position
    return 0, position


def _format_code(payload: bytes, position: int) -> tuple[int, int]:
    if position >= len(payload):
        raise CannotReceive("malformed AMQP: the message ends where a format code is due")
    code = payload[position]
    return code, position + (2 if code & 0x0F == 0x0F else 1)


def _integer(payload: bytes, position: int, *, is_short: bool) -> tuple[int, int]:
    """Return a size, count or length: -1 for a single byte beyond the end; four bytes are signed."""
    if is_short:
        return (payload[position], position + 1) if position < len(payload) else (-1, position)
    start, position = _take(payload, position, 4)
    return int.from_bytes(payload[start:position], signed=True), position


def _take(payload: bytes, position: int, length: int) -> tuple[int, int]:
    """Return where *length* bytes start and stop; at the end of the message a negative length counts as 0."""
    if length == _MAX_INT:
        length = len(payload) - position
    stop = position + length
    if stop > len(payload) or (length < 0 and position < len(payload)):
        raise CannotReceive(f"malformed AMQP: {length} bytes at byte {position}, the message has {len(payload)}")
    return position, max(stop, position)


def _extent(payload: bytes, position: int, short: int) -> tuple[int, int, int]:
    """
    Return the count of a list or map section, where its content starts and where it stops.

    .NET reads every format code but the short one with a size and count of 32 bits.
    """
    code, position = _format_code(payload, position)
    if code == _EMPTY_LIST and short == _LIST:
        return 0, position, position
    is_short = code == short
    size, position = _integer(payload, position, is_short=is_short)
    count, position = _integer(payload, position, is_short=is_short)
    if count == 0 or (count < 0 and short == _MAP):
        return 0, position, position
    return (count, *_take(payload, position, size - (1 if is_short else 4)))


def _map_section(message: Received, payload: bytes, position: int, number: int) -> int:
    count, start, stop = _extent(payload, position, _MAP)
    message.maps[number], _ = decode_entries(payload, start, stop, count)
    return stop


def _header_section(message: Received, payload: bytes, position: int, _number: int) -> int:
    count, start, stop = _extent(payload, position, _LIST)
    header: list[bytes] = [NULL] * 5
    _read_fields(header, _HEADER, payload, (count, start, stop))  # type: ignore[arg-type] # no field of it is a time
    message.header = header
    return stop


def _properties_section(message: Received, payload: bytes, position: int, _number: int) -> int:
    count, start, stop = _extent(payload, position, _LIST)
    message.properties = list(_NO_PROPERTIES)
    _read_fields(message.properties, _PROPERTIES, payload, (count, start, stop))
    return stop


def _read_fields(
    fields: list[Field], readers: tuple[_Readers, ...], payload: bytes, extent: tuple[int, int, int]
) -> None:
    count, position, stop = extent
    for index in range(min(count, len(readers))):
        if position >= stop:
            raise CannotReceive(f"malformed AMQP: field {index} of header or properties is beyond the end of its list")
        code = payload[position]
        if code != 0x40:
            reader = readers[index].get(code)
            if reader is None:
                raise CannotReceive(f"field {index} of header or properties has format code 0x{code:02x}")
            fields[index], position = reader(payload, position + 1, stop)
        else:
            position += 1


def _data_section(message: Received, payload: bytes, position: int, _number: int) -> int:
    code, position = _format_code(payload, position)
    if code == 0x40:
        return position
    length, start = _integer(payload, position, is_short=code == 0xA0)
    position = _take(payload, start, length)[1] if length > 0 else start
    if message.data is None:
        message.data = []
    message.data.append(payload[start:position])
    return position


def _sequence_section(message: Received, payload: bytes, position: int, _number: int) -> int:
    count, start, stop = _extent(payload, position, _LIST)
    if message.sequences is None:
        message.sequences = []
    message.sequences.append(decode_items(payload, start, stop, count)[0])
    return stop


def _value_section(message: Received, payload: bytes, position: int, _number: int) -> int:
    end = len(payload)
    message.value, position = decode_known(payload, position, end)
    if position < end:
        code, position = _format_code(payload, position)
        if code == 0x00:
            code, position = _format_code(payload, position)
        if code not in (0x44, 0x53, 0x80, 0xA3, 0xB3):
            raise CannotReceive(f"malformed AMQP: format code 0x{code:02x} after a value body, where a footer is due")
        _, position = READERS[code](payload, position, end)
        code, position = _format_code(payload, position)
        message.maps[sections.FOOTER] = {}
        if code in (0xC1, 0xD1):
            width = 1 if code == 0xC1 else 4
            if position + 2 * width > end:
                raise CannotReceive("malformed AMQP: the message ends within its footer")
            count = int.from_bytes(payload[position + width : position + 2 * width], signed=width > 1)
            message.maps[sections.FOOTER], _ = decode_entries(payload, position + 2 * width, end, count)
        elif code != 0x40:
            raise CannotReceive(f"malformed AMQP: a footer of format code 0x{code:02x}")
    return end


def _as_text(text: Callable[[bytes], str], reader: Reader) -> _FieldReader:
    """Return a reader of an identifier of which .NET uses the text."""

    def read_identifier(payload: bytes, position: int, end: int) -> tuple[Field, int]:
        value, position = reader(payload, position, end)
        return string(text(cast("bytes", value)).encode()), position

    return read_identifier


def _number_text(value: bytes) -> str:
    return str(int.from_bytes(value[1:]))


def _ubyte(payload: bytes, position: int, end: int) -> tuple[Field, int]:
    if position >= end:
        raise CannotReceive("malformed AMQP: the header ends within a field")
    return b"\x50" + payload[position : position + 1], position + 1


def _time(payload: bytes, position: int, end: int) -> tuple[Field, int]:
    stop = position + 8
    if stop > end:
        raise CannotReceive("malformed AMQP: the properties end within a field")
    return ticks(int.from_bytes(payload[position:stop], signed=True)), stop


def _after_extension(reader: _FieldReader) -> _FieldReader:
    """Return a reader that skips the second byte of a format code ending in F."""
    return lambda payload, position, end: reader(payload, position + 1, end)


def _whatever_the_code(reader: _FieldReader) -> _Readers:
    return {code: _after_extension(reader) if code & 0x0F == 0x0F else reader for code in range(256)}


def _codes(*codes: int) -> _Readers:
    return {code: cast("_FieldReader", READERS[code]) for code in codes}


# The readers of a field, by the format codes that .NET takes for it.
_BOOLEAN = _codes(0x41, 0x42, 0x56)
_UINT = _codes(0x43, 0x52, 0x70)
_STRING = _codes(0xA1, 0xB1)
_SYMBOL = _codes(0xA3, 0xB3)
_BINARY = _codes(0xA0, 0xB0)
_IDENTIFIER: _Readers = {
    **_STRING,
    **{code: _as_text(_number_text, READERS[code]) for code in (0x44, 0x53, 0x80)},
    **{code: _as_text(lambda value: content_of(value).hex().upper(), READERS[code]) for code in (0xA0, 0xB0)},
    0x98: _as_text(lambda value: str(uuid.UUID(bytes=value[1:])), READERS[0x98]),
}
_HEADER = (_BOOLEAN, _whatever_the_code(_ubyte), _UINT, _BOOLEAN, _UINT)
_PROPERTIES = (
    *(_IDENTIFIER, _BINARY, _STRING, _STRING, _STRING, _IDENTIFIER, _SYMBOL, _SYMBOL),
    *(_whatever_the_code(_time), _whatever_the_code(_time), _STRING, _UINT, _STRING),
)
_NO_PROPERTIES: tuple[Field, ...] = (*[NULL] * 8, None, None, *[NULL] * 3)
_SECTIONS: dict[int, Callable[[Received, bytes, int, int], int]] = {
    sections.HEADER: _header_section,
    sections.DELIVERY_ANNOTATIONS: _map_section,
    sections.MESSAGE_ANNOTATIONS: _map_section,
    sections.PROPERTIES: _properties_section,
    sections.APPLICATION_PROPERTIES: _map_section,
    sections.DATA: _data_section,
    sections.SEQUENCE: _sequence_section,
    sections.VALUE: _value_section,
    sections.FOOTER: _map_section,
}
