# ruff: noqa: PLR2004 - format codes of the AMQP specification; a name for each would hide the table
"""
The conversion of decoded objects to those of the SDK's message and back: properties, annotations and value bodies.

Source: AmqpAnnotatedMessageConverter.TryCreateNetPropertyFromAmqpProperty, TryCreateAmqpPropertyValueFromNetProperty
and TranslateSymbol, AmqpMessageBody.ValidateAmqpPrimitive (Azure/azure-sdk-for-net, sdk/core/Azure.Core.Amqp/src,
commit 975bf1a960e9).
"""

import re
from typing import Final
from urllib.parse import quote

from host.dotnet_simple import binary, content_of, string
from host.dotnet_text import key_text
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


_ABSOLUTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?(.*)", re.DOTALL)
_AUTHORITY = re.compile(r"([^/?#]*)(.*)", re.DOTALL)
_PORTS = {"http": ":80", "https": ":443", "ftp": ":21", "ws": ":80", "wss": ":443"}
_KEPT = "!#$&'()*+,/:;=?@[]~%"
_BARE_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


def absolute_uri(text: str) -> str | None:
    """
    Return System.Uri.AbsoluteUri of a text, None where .NET throws UriFormatException.

    Measured: http and https with spaces and non-ASCII text, a rooted path, relative and empty text. Assumed: lower case
    for scheme and host, default ports, dot segments and other schemes, according to RFC 3986 and the documentation of
    System.Uri.
    """
    text = text.strip()
    if text.startswith("/"):
        return "file://" + _escaped(text if not text.startswith("//") else text[2:])
    found = _ABSOLUTE.fullmatch(text)
    if found is None:
        return None
    scheme, slashes, rest = found[1].lower(), found[2] or "", found[3]
    if not slashes:
        return None if scheme in _PORTS else f"{scheme}:{_escaped(rest)}"
    found = _AUTHORITY.fullmatch(rest)
    authority, path = (found[1], found[2]) if found else ("", "")
    if not authority and scheme in _PORTS:
        return None
    user, at, host = authority.rpartition("@")
    host = host.lower().removesuffix(_PORTS.get(scheme, ":"))
    if not path.startswith("/"):
        path = "/" + path
    return f"{scheme}://{_escaped(user)}{at}{_escaped(host)}{_escaped(_without_dots(path))}"


def _escaped(text: str) -> str:
    return quote(_BARE_PERCENT.sub("%25", text), safe=_KEPT)


def _without_dots(path: str) -> str:
    """Return the path without its segments `.` and `..`."""
    end = min((at for at in (path.find("?"), path.find("#")) if at >= 0), default=len(path))
    segments = path[:end].split("/")
    if not {".", ".."} & set(segments):
        return path
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            kept = kept[:-1] if len(kept) > 1 else kept
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept) + path[end:]
