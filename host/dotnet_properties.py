# ruff: noqa: PLR2004 - format codes of the AMQP specification; a name for each would hide the table
"""
The conversion of decoded objects to those of the SDK's message and back: properties, annotations and value bodies.

Source: AmqpAnnotatedMessageConverter.TryCreateNetPropertyFromAmqpProperty, TryCreateAmqpPropertyValueFromNetProperty
and TranslateSymbol, AmqpMessageBody.ValidateAmqpPrimitive (Azure/azure-sdk-for-net, sdk/core/Azure.Core.Amqp/src,
commit 975bf1a960e9).
"""

from typing import Final

from host.dotnet_simple import binary, content_of, string
from host.dotnet_text import key_text
from host.dotnet_uri import absolute_uri
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

# In place of the value of a property that .NET reads and cannot write.
CANNOT_BIND: Final = b""

STRINGS: Final = (0xA1, 0xB1)
SYMBOLS: Final = (0xA3, 0xB3)
_BINARIES = (0xA0, 0xB0)
_URI = b"\xa3\x11com.microsoft:uri"
_TIMESPAN = b"\xa3\x16com.microsoft:timespan"
_DATETIME_OFFSET = b"\xa3\x1dcom.microsoft:datetime-offset"
_MAX_DATETIME_TICKS = 3_155_378_975_999_999_999


def properties_of(entries: dict[Object, Object], key_codes: tuple[int, int]) -> dict[bytes, bytes]:
    """
    Return the encoded entries of a map section; *key_codes* are those of a string or a symbol.

    CANNOT_BIND replaces a value that .NET cannot write. Of several keys with the same text, the last value stays. A key
    that is not ASCII becomes a string, even where symbols are required.
    """
    properties: dict[bytes, bytes] = {}
    for key, value in entries.items():
        if isinstance(value, bytes):
            encoded = value
            code = value[0]
            if code in SYMBOLS:
                encoded = b"%c%b" % (code - 2, encoded[1:])
            elif code in _BINARIES:
                encoded = CANNOT_BIND
        elif isinstance(value, Map):
            raise CannotReceive(
                "a map as a property or annotation: System.Runtime.Serialization.SerializationException"
            )
        elif isinstance(value, Described):
            translated = _translated(value)
            if translated is None:
                continue
            encoded = translated
        else:
            encoded = CANNOT_BIND
        if isinstance(key, bytes) and key[0] in key_codes:
            properties[key] = encoded
        else:
            properties[_key(key, key_codes)] = encoded
    return properties


def _key(key: Object, key_codes: tuple[int, int]) -> bytes:
    text = key_text(key).encode()
    encoded = string(text)
    if key_codes == STRINGS or not text.isascii():
        return encoded
    return b"%c%b" % (encoded[0] + 2, encoded[1:])


def body_value(value: Object) -> Object:
    """Return the value of a value body after the conversion; CannotReceive if .NET does not accept it."""
    if isinstance(value, bytes):
        return bytes((value[0] - 2,)) + value[1:] if value[0] in SYMBOLS else value
    if isinstance(value, Described):
        translated = _translated(value)
        if translated is None:
            raise CannotReceive("a value body of a described type: System.NotSupportedException")
        return translated
    if isinstance(value, Map):
        entries: dict[Object, Object] = {}
        for key, item in value.entries.items():
            text = string(key_text(key).encode())
            if text in entries:
                raise CannotReceive("a map body with two keys of one text: System.ArgumentException")
            check_body(item)
            entries[text] = item
        return Map(entries)
    if isinstance(value, Array) and value.code in (0x50, 0x51):
        return binary(value.content)
    check_body(value)
    return value


def check_body(value: Object) -> None:
    """Raise CannotReceive for an object that the SDK does not accept inside of a body."""
    if isinstance(value, bytes):
        if value == NULL:
            raise CannotReceive("null in a list, map or sequence of the body: System.ArgumentNullException")
        is_accepted = value[0] not in SYMBOLS
    elif isinstance(value, (List, ObjectArray)):
        for item in value.items:
            check_body(item)
        return
    elif isinstance(value, Array):
        is_accepted = value.code != 0xB3 or value.count == 0
    else:
        is_accepted = isinstance(value, BinaryKey) or (isinstance(value, Map) and not value.entries)
    if not is_accepted:
        raise CannotReceive(
            "a symbol, a described value or a map with entries in a list, map or sequence of the body: "
            "System.NotSupportedException"
        )


def _translated(value: Described) -> bytes | None:
    """Return the value of a described type that .NET knows; None for another type whose descriptor is a symbol."""
    descriptor, content = value.descriptor, value.value
    if value.is_known or not isinstance(descriptor, bytes) or descriptor[0] not in SYMBOLS:
        raise CannotReceive("a described value whose descriptor is no symbol, or one of AMQP's own")
    if descriptor == _URI:
        is_text = isinstance(content, bytes) and content[0] in STRINGS
        uri = absolute_uri(content_of(content).decode()) if is_text else None  # type: ignore[arg-type] # it is bytes
        if uri is None:
            raise CannotReceive("a com.microsoft:uri that is no absolute URI")
        return b"\x00" + _URI + string(uri.encode())
    if descriptor not in (_TIMESPAN, _DATETIME_OFFSET):
        return None
    if not isinstance(content, bytes) or content[0] not in (0x55, 0x81):
        raise CannotReceive(f"a {descriptor[2:].decode()} that is not a long")
    if descriptor == _DATETIME_OFFSET and not 0 <= int.from_bytes(content[1:], signed=True) <= _MAX_DATETIME_TICKS:
        raise CannotReceive("a com.microsoft:datetime-offset outside of the years 1 to 9999")
    return b"\x00" + descriptor + content
