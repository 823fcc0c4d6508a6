# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""
The conversion of a message by Azure's host for a function with an SDK type.

ModelBindingData does not have the bytes of the wire. The host decodes the message to .NET objects (`dotnet_sections`,
`dotnet_decoder`), converts them to the SDK's message and back, and encodes the result (`dotnet_encoder`). The table of
what changes is in docs/decisions/0003-azure-functions-host.md; tests/unit/host/test_dotnet_replay.py replays what
Microsoft's code answered.

Sources: AmqpAnnotatedMessageConverter and AmqpMessageBody (Azure/azure-sdk-for-net, sdk/core/Azure.Core.Amqp/src,
commit 975bf1a960e9); AmqpMessageConverter.AmqpMessageToSBReceivedMessage (sdk/servicebus/Azure.Messaging.ServiceBus);
ConvertReceivedMessageToBindingData and ConvertEventDataToBindingData (the extensions for Functions); AmqpMessage and
BufferListStream (Azure/azure-amqp, Microsoft.Azure.Amqp/Amqp, tag v2.7.1).
"""

from collections.abc import Mapping
from itertools import chain
from typing import cast

from host.dotnet_encoder import encode, list_of, map_of
from host.dotnet_properties import CANNOT_BIND, STRINGS, SYMBOLS, body_value, check_body, properties_of
from host.dotnet_sections import Field, Received, read
from host.dotnet_simple import binary, content_of, symbol, timestamp
from host.dotnet_values import MAX_TICKS, NULL, TICKS, CannotBind, CannotReceive
from shared.amqp import sections

_MAX_EXPIRY = MAX_TICKS - 864_000_000_000  # AmqpConstants.MaxAbsoluteExpiryTime, a day before DateTime.MaxValue
_FIRST_TICK = -621_355_968_000_000_000  # DateTime.MinValue
_MAX_UINT = 2**32 - 1
_EMPTY_TEXTS = (b"\xa1\x00", b"\xa3\x00")
_ABSENT_IF_EMPTY = (3, 6, 7, 10, 12)  # subject, content type and encoding, group id, reply-to group id
_TTL, _DELIVERY_COUNT, _EXPIRY, _CREATION = 2, 4, 8, 9
_TIMES = (_EXPIRY, _CREATION)
_NO_HEADER, _NO_PROPERTIES = [NULL] * 5, [NULL] * 13
_KEY_CODES = {
    sections.DELIVERY_ANNOTATIONS: SYMBOLS,
    sections.MESSAGE_ANNOTATIONS: SYMBOLS,
    sections.APPLICATION_PROPERTIES: STRINGS,
    sections.FOOTER: SYMBOLS,
}


def reencode(payload: bytes, now: int, *, delivery_count_offset: int = 0) -> bytes:
    """
    Return the message as Azure's host passes it to the worker.

    Units: *now* is the host's clock in milliseconds since 1970 UTC.
    Raises: CannotReceive and CannotBind, where .NET fails.
    """
    return encoded(received(payload), now, delivery_count_offset=delivery_count_offset)


def received(payload: bytes) -> Received:
    """Return the sections as the SDK's message has them; CannotReceive for a message that .NET cannot decode."""
    try:
        message = read(payload)
        for number, entries in message.maps.items():
            message.properties_by_section[number] = properties_of(entries, _KEY_CODES[number])
        _convert_body(message)
    except RecursionError as error:
        raise CannotReceive("values nested deeper than this host follows") from error
    return message


def encoded(message: Received, now: int, *, delivery_count_offset: int = 0) -> bytes:
    """Return the message as `reencode` does; CannotBind where .NET cannot write it."""
    try:
        return _write(message, now * TICKS, delivery_count_offset)
    except RecursionError as error:
        raise CannotReceive("values nested deeper than this host follows") from error


def _convert_body(message: Received) -> None:
    """Convert the body that .NET uses: data before sequences before a value."""
    if message.data is not None:
        return
    if message.sequences is not None:
        for item in chain.from_iterable(message.sequences):
            check_body(item)
    elif message.value != NULL:
        message.value = body_value(message.value)


def _write(message: Received, now: int, delivery_count_offset: int) -> bytes:
    header, properties = message.header.copy(), message.properties.copy()
    maps = message.properties_by_section
    ttl = time_to_live(message)
    if delivery_count_offset and header[_DELIVERY_COUNT] != NULL:
        header[_DELIVERY_COUNT] = _uint(int.from_bytes(header[_DELIVERY_COUNT][1:]) + delivery_count_offset & _MAX_UINT)
    if ttl is not None:
        header[_TTL] = _uint(max(0, min(int(ttl / TICKS), _MAX_UINT)))
        properties[_CREATION] = now
        properties[_EXPIRY] = now + ttl if _MAX_EXPIRY - now > ttl else _MAX_EXPIRY
        if now + ttl < _FIRST_TICK:
            raise CannotBind("an absolute-expiry-time before the year 1: System.ArgumentOutOfRangeException")
    footer = _map_section(sections.FOOTER, maps)
    return b"".join(
        (
            b"\x00\x53\x70" + list_of(header) if header != _NO_HEADER else b"",
            _map_section(sections.DELIVERY_ANNOTATIONS, maps),
            _map_section(sections.MESSAGE_ANNOTATIONS, maps),
            _properties_section(properties),
            _map_section(sections.APPLICATION_PROPERTIES, maps),
            _body(message, has_footer=bool(footer)),
            footer,
        )
    )


def time_to_live(message: Received) -> int | None:
    """Return the time to live in ticks: expiry minus creation where both are set, which may be negative."""
    expiry, creation, ttl = message.properties[_EXPIRY], message.properties[_CREATION], message.header[_TTL]
    if isinstance(expiry, int) and isinstance(creation, int):
        return expiry - creation
    return None if ttl == NULL else int.from_bytes(ttl[1:]) * TICKS


def _uint(number: int) -> bytes:
    return b"\x43" if number == 0 else b"\x52%c" % number if number <= 0xFF else b"\x70" + number.to_bytes(4)


def _properties_section(properties: list[Field]) -> bytes:
    for index in _TIMES:
        time = properties[index]
        properties[index] = timestamp(time) if isinstance(time, int) else NULL
    for index in _ABSENT_IF_EMPTY:
        if properties[index] in _EMPTY_TEXTS:
            properties[index] = NULL
    fields = cast("list[bytes]", properties)
    return b"\x00\x53\x73" + list_of(fields) if fields != _NO_PROPERTIES else b""


def _map_section(number: int, maps: Mapping[int, Mapping[bytes, bytes]]) -> bytes:
    """Return the section, empty without entries."""
    entries = maps.get(number)
    if not entries:
        return b""
    if CANNOT_BIND in entries.values():
        raise CannotBind("a binary, list or array as a property or annotation: SerializationException")
    content = b"".join(chain.from_iterable(entries.items()))
    if number != sections.APPLICATION_PROPERTIES and [key for key in entries if key[0] not in SYMBOLS]:
        content = b"".join(chain.from_iterable((_symbol(key), value) for key, value in entries.items()))
    return b"\x00\x53%c%b" % (number, map_of(content, 2 * len(entries)))


def _symbol(key: bytes) -> bytes:
    """Return the key of an annotation: a question mark for each half of UTF-16 that is not ASCII."""
    if key[0] in SYMBOLS:
        return key
    text = content_of(key).decode()
    return symbol("".join(char if char < "\x80" else "?" if char < "\U00010000" else "??" for char in text).encode())


def _body(message: Received, *, has_footer: bool) -> bytes:
    if message.data is None and message.sequences is not None:
        return b"".join([b"\x00\x53\x76" + list_of([encode(item) for item in items]) for items in message.sequences])
    if message.data is None and message.value != NULL:
        return b"\x00\x53\x77" + encode(message.value)
    data = message.data or [b""]
    for index, content in enumerate(data):
        if not content and (has_footer or index + 1 < len(data)):
            raise CannotBind("an empty data section before another section: System.ArgumentException")
    return b"".join([b"\x00\x53\x75" + binary(content) for content in data])
