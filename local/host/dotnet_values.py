# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""
The conversion of one AMQP value by Azure's host: decoded to a .NET object and encoded again.

1. The input is the bytes of a value, the output the bytes that Microsoft.Azure.Amqp writes; both start with the format
   code.
2. `CannotReceive`: .NET fails to decode the message, so the whole receive call fails.
3. `CannotBind`: .NET fails to create ModelBindingData, so the invocation never starts.
4. `DROPPED`: .NET omits the entry silently.

Sources: AmqpAnnotatedMessageConverter.TryCreateNetPropertyFromAmqpProperty, TryCreateAmqpPropertyValueFromNetProperty
and TranslateSymbol (Azure/azure-sdk-for-net, sdk/core/Azure.Core.Amqp/src/Shared, commit 975bf1a960e9); the encodings
(Azure/azure-amqp, src/Encoding, commit b8d2ac0acc00): IntEncoding, UIntEncoding, StringEncoding, TimeStampEncoding,
BooleanEncoding, DecimalEncoding, DescribedEncoding.
"""

from collections.abc import Callable

from local.host.dotnet_decimal import decimal128
from shared.amqp.scan import skip
from shared.amqp.values import Malformed
from shared.errors import MessageRejected

DROPPED = b""

# The length of a value with its format code, by that code; 0 if the length is in the value.
FIXED_WIDTHS = [{4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}.get(code >> 4, 0) for code in range(256)]

MAX_TIMESTAMP = 253_402_300_799_999  # DateTime.MaxValue in milliseconds since 1970
_LAST_TIMESTAMP = b"\x83" + MAX_TIMESTAMP.to_bytes(8)  # greater bytes are later, or negative

type Convert = Callable[[bytes], bytes]


class CannotReceive(MessageRejected):
    """.NET throws when it decodes the message: Azure's host receives nothing of the whole batch."""

    def __init__(self, description: str) -> None:
        """Describe what .NET cannot read."""
        super().__init__("HostCannotReceive", description)


class CannotBind(MessageRejected):
    """.NET throws when it creates the binding data: the invocation fails and the function does not run."""

    def __init__(self, description: str) -> None:
        """Describe what .NET cannot write."""
        super().__init__("HostCannotBind", description)


def body_value(raw: bytes) -> bytes:
    """Return the value of a value body as .NET writes it; DROPPED for null, which becomes an empty data body."""
    convert = _BODIES[raw[0]]
    return raw if convert is None else convert(raw)


def nested_value(raw: bytes) -> bytes:
    """Return a value inside a list, map or sequence: decoded and encoded, with no conversion between types."""
    convert = _NESTED[raw[0]]
    return raw if convert is None else convert(raw)


def string(text: bytes) -> bytes:
    """Return UTF-8 text as an AMQP string in its smallest encoding."""
    if len(text) <= 0xFF:
        return b"\xa1%c%b" % (len(text), text)
    return b"\xb1%b%b" % (len(text).to_bytes(4), text)


def symbol(text: bytes) -> bytes:
    """Return ASCII text as an AMQP symbol in its smallest encoding."""
    if len(text) <= 0xFF:
        return b"\xa3%c%b" % (len(text), text)
    return b"\xb3%b%b" % (len(text).to_bytes(4), text)


def binary(content: bytes) -> bytes:
    """Return bytes as an AMQP binary in its smallest encoding."""
    if len(content) <= 0xFF:
        return b"\xa0%c%b" % (len(content), content)
    return b"\xb0%b%b" % (len(content).to_bytes(4), content)


def uint(number: int) -> bytes:
    """Return a uint in its smallest encoding."""
    return b"\x43" if number == 0 else b"\x52%c" % number if number <= 0xFF else b"\x70" + number.to_bytes(4)


def timestamp(milliseconds: int) -> bytes:
    """Return a timestamp, clamped to the range of DateTime as .NET does on reading."""
    return b"\x83" + min(max(milliseconds, 0), MAX_TIMESTAMP).to_bytes(8)


def text_of(raw: bytes) -> bytes:
    """Return the UTF-8 of a string or symbol, with U+FFFD (symbols: a question mark) for invalid text."""
    content = variable_content(raw)
    if content.isascii():
        return content
    if raw[0] in (0xA3, 0xB3):
        return bytes(byte if byte < 0x80 else 0x3F for byte in content)
    return content.decode("utf-8", "replace").encode()


def variable_content(raw: bytes) -> bytes:
    """Return the content of a binary, string or symbol."""
    return raw[2:] if raw[0] < 0xB0 else raw[5:]


def compound(raw: bytes) -> list[bytes]:
    """Return the encoded items of a list, or keys and values of a map in turn."""
    code = raw[0]
    if code == 0x45:
        return []
    position = 3 if code < 0xD0 else 9
    count = raw[2] if code < 0xD0 else int.from_bytes(raw[5:9])
    end = len(raw)
    items = []
    for _ in range(count):
        stop = position + (FIXED_WIDTHS[raw[position]] or skip(raw, position, end) - position)
        items.append(raw[position:stop])
        position = stop
    if position != end:
        raise Malformed(f"compound: {count} values end at byte {position}, its size at byte {end}")
    return items


def join_compound(small: int, large: int, items: list[bytes], count: int) -> bytes:
    """Return a list or map in the width that .NET uses for its content."""
    content = b"".join(items)
    if len(content) < 0xFF and count <= 0xFF:
        return b"%c%c%c%b" % (small, len(content) + 1, count, content)
    return b"%c%b%b%b" % (large, (len(content) + 4).to_bytes(4), count.to_bytes(4), content)


def list_of(items: list[bytes]) -> bytes:
    """Return an encoded list of encoded items."""
    return join_compound(0xC0, 0xD0, items, len(items)) if items else b"\x45"


def map_of(entries: dict[bytes, bytes]) -> bytes:
    """Return an encoded map of encoded keys and values; .NET does not shorten an empty map."""
    if not entries:
        return b"\xd1\x00\x00\x00\x04\x00\x00\x00\x00"
    return join_compound(0xC1, 0xD1, [part for entry in entries.items() for part in entry], 2 * len(entries))


def _uint(raw: bytes) -> bytes:
    return uint(int.from_bytes(raw[1:]))


def _ulong(raw: bytes) -> bytes:
    number = int.from_bytes(raw[1:])
    return b"\x44" if number == 0 else b"\x53%c" % number if number <= 0xFF else b"\x80" + number.to_bytes(8)


def _signed(small: int) -> Convert:
    def convert(raw: bytes) -> bytes:
        number = int.from_bytes(raw[1:], signed=True)
        return b"%c%b" % (small, number.to_bytes(1, signed=True)) if -0x80 <= number <= 0x7F else raw

    return convert


def _boolean(raw: bytes) -> bytes:
    return b"\x41" if raw[1] == 1 else b"\x42"


def _timestamp(raw: bytes) -> bytes:
    if raw <= _LAST_TIMESTAMP:
        return raw
    return timestamp(int.from_bytes(raw[1:], signed=True))


def _decimal(raw: bytes) -> bytes:
    try:
        return decimal128(raw)
    except OverflowError as error:
        raise CannotReceive(f"a decimal {error}, which System.Decimal cannot hold") from error


def _char(raw: bytes) -> bytes:
    if int.from_bytes(raw[1:]) > 0xFFFF:
        raise CannotReceive("a char beyond U+FFFF, which System.Char cannot hold")
    return raw


def _string(raw: bytes) -> bytes:
    if raw[0] == 0xA1 and raw[1:].isascii():
        return raw
    return string(text_of(raw))


def _symbol(raw: bytes) -> bytes:
    return symbol(text_of(raw))


def _binary(raw: bytes) -> bytes:
    return binary(variable_content(raw))


def _nothing(_raw: bytes) -> bytes:
    return DROPPED


def _cannot_bind(kind: str) -> Convert:
    def convert(_raw: bytes) -> bytes:
        raise CannotBind(
            f"a property or annotation of type {kind}: System.Runtime.Serialization.SerializationException"
        )

    return convert


def _cannot_receive(kind: str) -> Convert:
    def convert(_raw: bytes) -> bytes:
        raise CannotReceive(f"{kind}, which Microsoft.Azure.Amqp or the SDK does not accept here")

    return convert


_TIMESPAN = b"com.microsoft:timespan"
_DATETIME_OFFSET = b"com.microsoft:datetime-offset"
_URI = b"com.microsoft:uri"


def _described(raw: bytes) -> bytes:
    stop = skip(raw, 1, len(raw))
    descriptor, value = raw[1:stop], raw[stop:]
    if descriptor[0] not in (0xA3, 0xB3):
        raise CannotReceive("a described value whose descriptor is not a symbol")
    name = variable_content(descriptor)
    if name == _URI and value[0] in (0xA1, 0xB1):
        return b"\x00" + symbol(name) + _string(value)
    if name in (_TIMESPAN, _DATETIME_OFFSET) and value[0] in (0x55, 0x81):
        return b"\x00" + symbol(name) + (value if value[0] == 0x55 else _signed(0x55)(value))
    if name in (_URI, _TIMESPAN, _DATETIME_OFFSET):
        raise CannotReceive(f"a {name.decode()} whose value has another type than .NET casts it to")
    return DROPPED


def _body_described(raw: bytes) -> bytes:
    value = _described(raw)
    if value == DROPPED:
        raise CannotReceive("a value body of a described type: System.NotSupportedException")
    return value


def _nested_described(raw: bytes) -> bytes:
    stop = skip(raw, 1, len(raw))
    return b"\x00" + nested_value(raw[1:stop]) + nested_value(raw[stop:])


def _list(raw: bytes) -> bytes:
    return list_of([nested_value(item) for item in compound(raw)])


def _map(raw: bytes) -> bytes:
    parts = compound(raw)
    keys = [nested_value(key) for key in parts[::2]]
    return map_of(dict(zip(keys, [nested_value(value) for value in parts[1::2]], strict=True)))


def _body_map(raw: bytes) -> bytes:
    """Return a map after Dictionary<string, object>: keys are strings and unique."""
    parts = compound(raw)
    entries: dict[bytes, bytes] = {}
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        name = string(key_text(key))
        if name in entries:
            raise CannotReceive("a map body with two keys that read the same: System.ArgumentException")
        entries[name] = nested_value(value)
    return map_of(entries)


def key_text(raw: bytes) -> bytes:
    """Return the text of a map's key, as `ToString` returns it for text and whole numbers."""
    code = raw[0]
    if code in (0xA1, 0xA3, 0xB1, 0xB3):
        return text_of(raw)
    if code in (0x43, 0x44):
        return b"0"
    if code in (0x50, 0x52, 0x53, 0x60, 0x70, 0x80):
        return b"%d" % int.from_bytes(raw[1:])
    if code in (0x51, 0x54, 0x55, 0x61, 0x71, 0x81):
        return b"%d" % int.from_bytes(raw[1:], signed=True)
    if code == 0x40:
        return b"<null>"
    raise CannotReceive(
        f"a map key of format code 0x{code:02x}; this host knows .NET's text for text and integers only"
    )


# The changes by decoding and encoding; None for a format code whose bytes do not change.
_SAME = dict.fromkeys((0x40, 0x41, 0x42, 0x43, 0x44, 0x50, 0x51, 0x54, 0x55, 0x60, 0x61, 0x72, 0x82, 0x98))
_NESTED_CODES: dict[int, Convert | None] = {
    **_SAME,
    0x00: _nested_described,
    0x45: None,
    0x52: _uint,
    0x53: _ulong,
    0x56: _boolean,
    0x70: _uint,
    0x71: _signed(0x54),
    0x73: _char,
    0x74: _decimal,
    0x80: _ulong,
    0x81: _signed(0x55),
    0x83: _timestamp,
    0x84: _decimal,
    0x94: _decimal,
    0xA0: None,
    0xA1: _string,
    0xA3: _symbol,
    0xB0: _binary,
    0xB1: _string,
    0xB3: _symbol,
    0xC0: _list,
    0xC1: _map,
    0xD0: _list,
    0xD1: _map,
    # .NET writes every array as array32 with items of full width; the items' values stay, so the bytes do here.
    0xE0: None,
    0xF0: None,
}
_PROPERTY_CODES: dict[int, Convert | None] = {
    **_NESTED_CODES,
    0x00: _described,
    0xA3: _string,
    0xB3: _string,
    **dict.fromkeys((0xA0, 0xB0), _cannot_bind("binary")),
    **dict.fromkeys((0x45, 0xC0, 0xD0), _cannot_bind("list")),
    **dict.fromkeys((0xE0, 0xF0), _cannot_bind("array")),
    **dict.fromkeys((0xC1, 0xD1), _cannot_receive("a map as a property or annotation")),
}
_BODY_CODES: dict[int, Convert | None] = {
    **_NESTED_CODES,
    0x00: _body_described,
    0x40: _nothing,
    0xA3: _string,
    0xB3: _string,
    0xC1: _body_map,
    0xD1: _body_map,
}


def _table(codes: dict[int, Convert | None]) -> list[Convert | None]:
    unknown = _cannot_receive("a format code without a type")
    return [codes.get(code, unknown) for code in range(256)]


_NESTED = _table(_NESTED_CODES)
# How .NET writes the value of an application property or annotation, by format code; DROPPED for one it omits.
PROPERTY_VALUES = _table(_PROPERTY_CODES)
_BODIES = _table(_BODY_CODES)
