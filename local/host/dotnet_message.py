# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""
The conversion of a message by Azure's host for a function with an SDK type.

ModelBindingData does not have the bytes of the wire. The host decodes the message to .NET objects
(AmqpAnnotatedMessageConverter.FromAmqpMessage) and encodes these again (ToAmqpMessage, reached through
AmqpAnnotatedMessage.ToBytes). The conversion changes the message:

1. values of properties and annotations change as described in `dotnet_values`; keys become strings, keys of annotations
   symbols;
2. message-id and correlation-id become strings; an empty content-type, content-encoding, subject, group-id or
   reply-to-group-id disappears; header and properties are written with all their fields, null where it is missing;
3. header.ttl becomes absolute-expiry-time minus creation-time where both are set; where there is a ttl then,
   creation-time becomes the host's clock and absolute-expiry-time that plus the ttl;
4. Service Bus only: header.delivery-count is one more than on the wire (it counts the present delivery);
5. several data sections and sequences stay, a missing body and a null become one empty data section;
6. empty sections disappear.

Sources: AmqpAnnotatedMessageConverter (Azure/azure-sdk-for-net, sdk/core/Azure.Core.Amqp/src/Shared, commit
975bf1a960e9); AmqpMessageConverter.AmqpMessageToSBReceivedMessage (sdk/servicebus/Azure.Messaging.ServiceBus);
ConvertReceivedMessageToBindingData and ConvertEventDataToBindingData (Microsoft.Azure.WebJobs.Extensions.ServiceBus
and .EventHubs); AmqpMessage, Header, Properties, MapEncoding (Azure/azure-amqp, src, commit b8d2ac0acc00).
"""

import uuid

from local.host.dotnet_values import (
    DROPPED,
    FIXED_WIDTHS,
    MAX_TIMESTAMP,
    PROPERTY_VALUES,
    CannotBind,
    CannotReceive,
    binary,
    body_value,
    compound,
    key_text,
    list_of,
    map_of,
    nested_value,
    string,
    symbol,
    text_of,
    timestamp,
    uint,
    variable_content,
)
from shared.amqp import sections
from shared.amqp.scan import skip
from shared.amqp.sections import Sections
from shared.amqp.values import Malformed

_NULL = b"\x40"
_SHORT_TEXT = (0xA1, 0xA3)
_AS_STRING = 0xA1
_AS_SYMBOL = 0xA3
_DAY = 86_400_000
_MAX_EXPIRY = MAX_TIMESTAMP - _DAY  # AmqpConstants.MaxAbsoluteExpiryTime
_MAX_UINT = 2**32 - 1
_BOOLEAN = frozenset((0x41, 0x42, 0x56))
_UBYTE = frozenset((0x50,))
_UINT = frozenset((0x43, 0x52, 0x70))
_STRING = frozenset((0xA1, 0xB1))
_SYMBOL = frozenset((0xA3, 0xB3))
_BINARY = frozenset((0xA0, 0xB0))
_TIMESTAMP = frozenset((0x83,))
_IDENTIFIER = _STRING | _BINARY | {0x44, 0x53, 0x80, 0x98}
_HEADER_TYPES = (_BOOLEAN, _UBYTE, _UINT, _BOOLEAN, _UINT)
_PROPERTIES_TYPES = (
    _IDENTIFIER,
    _BINARY,
    _STRING,
    _STRING,
    _STRING,
    _IDENTIFIER,
    _SYMBOL,
    _SYMBOL,
    _TIMESTAMP,
    _TIMESTAMP,
    _STRING,
    _UINT,
    _STRING,
)
_EMPTY_BODY = b"\x00\x53\x75\xa0\x00"


def reencode(payload: bytes, now: int, *, delivery_count_offset: int = 0) -> bytes:
    """
    Return the message as Azure's host hands it over.

    Units: *now* is the host's clock in milliseconds since 1970 UTC.
    Raises: CannotReceive and CannotBind, where .NET fails.
    """
    try:
        return _reencode(sections.split(payload), now, delivery_count_offset)
    except (Malformed, IndexError) as error:
        raise CannotReceive(f"malformed AMQP: {error}") from error


def check_readable(payload: bytes) -> None:
    """Raise CannotReceive for a message that .NET cannot decode, whatever the function receives of it."""
    try:
        reencode(payload, 0)
    except CannotBind:
        return  # decoding succeeded; only encoding fails


def _reencode(source: Sections, now: int, delivery_count_offset: int) -> bytes:
    header = _fields(source.header, _HEADER_TYPES)
    properties = _fields(source.properties, _PROPERTIES_TYPES)
    ttl = _time_to_live(header, properties)
    header = [
        field if field == _NULL else convert(field) for convert, field in zip(_HEADER_FIELDS, header, strict=True)
    ]
    if header[4] != _NULL and delivery_count_offset:
        header[4] = uint(_number(header[4]) + delivery_count_offset & _MAX_UINT)
    if source.properties:
        properties = _properties(properties)
    if ttl is not None:
        ttl = max(ttl, 0)
        header[2] = uint(min(ttl, _MAX_UINT))
        properties[8] = timestamp(now + ttl if _MAX_EXPIRY - now > ttl else _MAX_EXPIRY)
        properties[9] = timestamp(now)
    failures: list[CannotBind] = []
    message = b"".join(
        (
            _list_section(b"\x00\x53\x70", header),
            _map_section(b"\x00\x53\x71", source.delivery_annotations, _AS_SYMBOL, failures),
            _map_section(b"\x00\x53\x72", source.message_annotations, _AS_SYMBOL, failures),
            _list_section(b"\x00\x53\x73", properties),
            _map_section(b"\x00\x53\x74", source.application_properties, _AS_STRING, failures),
            _body(source.body),
            _map_section(b"\x00\x53\x78", source.footer, _AS_SYMBOL, failures),
        )
    )
    # .NET reads the whole message before it writes any of it, so read errors are raised above.
    if failures:
        raise failures[0]
    return message


def _content(section: bytes) -> bytes:
    _, start = sections.descriptor(section, 0)
    return section[start:]


def _fields(section: bytes, allowed: tuple[frozenset[int], ...]) -> list[bytes]:
    """Return a field for each entry of *allowed*, the format codes of its type."""
    fields = compound(_content(section))[: len(allowed)] if section else []
    for index, (field, codes) in enumerate(zip(fields, allowed, strict=False)):
        if field[0] not in codes and field != _NULL:
            raise CannotReceive(f"field {index} of header or properties has format code 0x{field[0]:02x}")
    return fields + [_NULL] * (len(allowed) - len(fields))


def _number(field: bytes) -> int:
    return int.from_bytes(field[1:])


def _time_to_live(header: list[bytes], properties: list[bytes]) -> int | None:
    """Return the time to live in milliseconds, None if the message has no time to live."""
    expiry, creation = properties[8], properties[9]
    if _NULL not in (expiry, creation):
        return _milliseconds(expiry) - _milliseconds(creation)
    return None if header[2] == _NULL else _number(header[2])


def _milliseconds(field: bytes) -> int:
    return min(max(int.from_bytes(field[1:], signed=True), 0), MAX_TIMESTAMP)


def _properties(fields: list[bytes]) -> list[bytes]:
    return [
        field if field == _NULL else convert(field) for convert, field in zip(_PROPERTY_FIELDS, fields, strict=True)
    ]


def _identifier(field: bytes) -> bytes:
    code = field[0]
    if code == 0xA1 and field[1:].isascii():
        return field
    if code in (0xA1, 0xB1):
        return string(text_of(field))
    if code == 0x98:
        return string(str(uuid.UUID(bytes=field[1:])).encode())
    if code in (0x44, 0x53, 0x80):
        return string(b"%d" % int.from_bytes(field[1:]))
    return string(variable_content(field).hex().upper().encode())


def _user_id(field: bytes) -> bytes:
    return binary(variable_content(field))


def _address(field: bytes) -> bytes:
    return string(text_of(field))


def _text(field: bytes) -> bytes:
    text = text_of(field)
    return string(text) if text else _NULL


def _symbolic(field: bytes) -> bytes:
    text = text_of(field)
    return symbol(text) if text else _NULL


def _moment(field: bytes) -> bytes:
    return timestamp(int.from_bytes(field[1:], signed=True))


def _whole_number(field: bytes) -> bytes:
    return uint(_number(field))


def _flag(field: bytes) -> bytes:
    return b"\x41" if field in (b"\x41", b"\x56\x01") else b"\x42"


def _same(field: bytes) -> bytes:
    return field


_HEADER_FIELDS = (_flag, _same, _whole_number, _flag, _whole_number)
_PROPERTY_FIELDS = (
    _identifier,
    _user_id,
    _address,
    _text,
    _address,
    _identifier,
    _symbolic,
    _symbolic,
    _moment,
    _moment,
    _text,
    _whole_number,
    _text,
)


def _list_section(prefix: bytes, fields: list[bytes]) -> bytes:
    if all(field == _NULL for field in fields):
        return b""
    return prefix + list_of(fields)


def _map_section(prefix: bytes, section: bytes, key_code: int, failures: list[CannotBind]) -> bytes:
    """Return the section as .NET writes it; of entries with one key the last is kept, at the position of the first."""
    if not section:
        return b""
    content = _content(section)
    end = len(content)
    position = 3 if content[0] < 0xD0 else 9
    entries: dict[bytes, bytes] = {}
    while position < end:
        if content[position] in _SHORT_TEXT:
            stop = position + 2 + content[position + 1]
            key = content[position + 1 : stop]
            key = b"%c%b" % (key_code, key) if key.isascii() else _key(content[position:stop], key_code)
        else:
            stop = skip(content, position, end)
            key = _key(content[position:stop], key_code)
        code = content[stop]
        position = stop + (FIXED_WIDTHS[code] or skip(content, stop, end) - stop)
        value = content[stop:position]
        convert = PROPERTY_VALUES[code]
        if convert is not None:
            try:
                value = convert(value)
            except CannotBind as failure:
                failures.append(failure)
        if value != DROPPED:
            entries[key] = value
    if position != end:
        raise Malformed(f"map: its entries end at byte {position}, its size at byte {end}")
    return prefix + map_of(entries) if entries else b""


def _key(raw: bytes, key_code: int) -> bytes:
    text = key_text(raw)
    return string(text) if key_code == _AS_STRING else symbol(text.decode().encode("ascii", "replace"))


def _body(body: bytes) -> bytes:
    if not body:
        return _EMPTY_BODY
    parts: list[bytes] = []
    position = 0
    while position < len(body):
        number, start = sections.descriptor(body, position)
        position = skip(body, start, len(body))
        content = body[start:position]
        if number == sections.DATA:
            parts.append(b"\x00\x53\x75" + binary(variable_content(content)))
        elif number == sections.SEQUENCE:
            parts.append(b"\x00\x53\x76" + list_of([nested_value(item) for item in compound(content)]))
        else:
            value = body_value(content)
            parts.append(_EMPTY_BODY if value == DROPPED else b"\x00\x53\x77" + value)
    return b"".join(parts)
