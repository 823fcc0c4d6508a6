"""
The canonical encoding of AMQP values: one encoding for each value, regardless of the sender's encoding.

Numbers keep their type; symbols become strings, as in Azure's host, and decimals of all widths become one type.
"""

from collections.abc import Callable

from shared.amqp.codec import decode, encode, items_of, pairs_of
from shared.amqp.values import Array, Described, Value
from shared.rules.decimals import exact_text

_SHORT = 0x100

# Values with a single encoding, or already in the chosen one, by format code: their size in bytes, or 0 for short
# strings and binaries, which contain their size.
CANONICAL_WIDTHS = {
    **dict.fromkeys((0x40, 0x41, 0x42), 1),
    **dict.fromkeys((0x50, 0x51), 2),
    **dict.fromkeys((0x60, 0x61), 3),
    **dict.fromkeys((0x70, 0x71, 0x72, 0x73), 5),
    **dict.fromkeys((0x80, 0x81, 0x82, 0x83), 9),
    0x98: 17,
    **dict.fromkeys((0xA0, 0xA1), 0),
}


def canonical(buffer: bytes, start: int, stop: int) -> bytes:
    """Return the value from *start* to *stop* in its canonical encoding; raises Malformed if it is not a value."""
    code = buffer[start]
    if code in CANONICAL_WIDTHS:
        return buffer[start:stop]
    widen = _WIDER.get(code)
    if widen is not None:
        return widen(buffer[start + 1 : stop])
    return _of_value(decode(buffer, start, stop)[0])


def _of_value(value: Value) -> bytes:
    payload = value.payload
    if isinstance(payload, Described):
        return b"\x00" + _of_value(payload.descriptor) + _of_value(payload.value)
    if isinstance(payload, Array):
        return _counted(b"\xf0", list(map(_of_value, payload.items)))
    if value.kind == "map":
        return _counted(b"\xd1", [_of_value(key) + _of_value(item) for key, item in pairs_of(value)])
    if value.kind == "list":
        return _counted(b"\xd0", list(map(_of_value, items_of(value))))
    if value.kind.startswith("decimal") and isinstance(payload, bytes):
        return _variable(0xA1, b"\x94" + exact_text(value.kind, payload).encode())
    encoded = encode(value)
    widen = _WIDER.get(encoded[0])
    return encoded if widen is None else widen(encoded[1:])


def _counted(prefix: bytes, items: list[bytes]) -> bytes:
    return prefix + len(items).to_bytes(4) + b"".join(items)


def _variable(short_code: int, content: bytes) -> bytes:
    if len(content) < _SHORT:
        return bytes((short_code, len(content))) + content
    return bytes((short_code + 0x10,)) + len(content).to_bytes(4) + content


def _signed(code: int, width: int) -> Callable[[bytes], bytes]:
    return lambda content: bytes((code,)) + int.from_bytes(content, signed=True).to_bytes(width, signed=True)


def _unsigned(code: int, width: int) -> Callable[[bytes], bytes]:
    return lambda content: bytes((code,)) + int.from_bytes(content).to_bytes(width)


# By format code: a function from the bytes after it to the canonical encoding.
_WIDER: dict[int, Callable[[bytes], bytes]] = {
    0x54: _signed(0x71, 4),
    0x55: _signed(0x81, 8),
    0x43: _unsigned(0x70, 4),
    0x52: _unsigned(0x70, 4),
    0x44: _unsigned(0x80, 8),
    0x53: _unsigned(0x80, 8),
    0x56: lambda content: b"\x41" if content == b"\x01" else b"\x42",
    0xA3: lambda content: b"\xa1" + content,
    0xB0: lambda content: _variable(0xA0, content[4:]),
    0xB1: lambda content: _variable(0xA1, content[4:]),
    0xB3: lambda content: _variable(0xA1, content[4:]),
}
