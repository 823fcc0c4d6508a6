"""
The fields of performatives and other described lists.

Simple values become plain Python values; maps, lists, arrays and described values stay typed `Value`s.
"""

import struct
from collections.abc import Sequence

from shared.amqp.codec import decode, encode
from shared.amqp.errors import DECODE_ERROR, ConnectionViolation
from shared.amqp.values import Array, Described, Malformed, Value, array, string, symbol, uint, ulong

type Field = bool | int | str | bytes | Value | None

_UINT32 = struct.Struct(">I")
_SIMPLE = frozenset(
    ("boolean", "ubyte", "ushort", "uint", "ulong", "int", "long", "binary", "string", "symbol", "null")
)

NULL = b"\x40"

ACCEPTED = Value(0, Described(Value(0x53, 0x24), Value(0x45, ())))
_ACCEPTED = b"\x00\x53\x24\x45"


# Reading the common fields here, without a typed value for each, saves 3.1 µs for each message that is received and
# settled. Constants are their format code alone; the other codes are followed by one byte.
_CONSTANTS: dict[int, Field] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0}
_BYTES = frozenset((0x50, 0x52, 0x53))


def read_list(buffer: bytes) -> tuple[int, list[Field], int]:
    """Return the descriptor, the fields and the end of the described list at the start of *buffer*."""
    try:
        return _read_list(buffer)
    except (Malformed, IndexError, struct.error) as error:
        raise ConnectionViolation(DECODE_ERROR, f"performative: {error}") from error


def _read_list(buffer: bytes) -> tuple[int, list[Field], int]:
    code, count, position, stop = _read_head(buffer)
    fields: list[Field] = []
    for _ in range(count):
        kind = buffer[position]
        field: Field
        if kind in _CONSTANTS:
            field, position = _CONSTANTS[kind], position + 1
        elif kind in _BYTES:
            field, position = buffer[position + 1], position + 2
        elif kind == 0x56:
            field, position = buffer[position + 1] == 1, position + 2
        elif kind == 0x70:
            field, position = _UINT32.unpack_from(buffer, position + 1)[0], position + 5
        elif kind == 0xA0:
            start, position = position + 2, position + 2 + buffer[position + 1]
            field = buffer[start:position]
        elif kind == 0x00 and buffer.startswith(_ACCEPTED, position):
            field, position = ACCEPTED, position + len(_ACCEPTED)
        else:
            value, position = decode(buffer, position, stop)
            field = value.payload if value.kind in _SIMPLE else value  # type: ignore[assignment] # the kind says so
        fields.append(field)
    if position != stop:
        raise Malformed(f"list: its values end at byte {position}, its size at byte {stop}")
    return code, fields, stop


def _read_head(buffer: bytes) -> tuple[int, int, int, int]:
    """Return the descriptor of the list, the count of its values, where they start and where they stop."""
    code, position = (buffer[2], 3) if buffer[:2] == b"\x00\x53" else _descriptor(buffer)
    kind = buffer[position]
    if kind == 0xC0:
        stop = position + 2 + buffer[position + 1]
        count = buffer[position + 2]
        position += 3
    elif kind == 0xD0:
        stop = position + 5 + _UINT32.unpack_from(buffer, position + 1)[0]
        count = _UINT32.unpack_from(buffer, position + 5)[0]
        position += 9
    elif kind == 0x45:
        return code, 0, position + 1, position + 1
    else:
        raise Malformed(f"format code 0x{kind:02x}, expected a list")
    if stop > len(buffer) or count > stop - position:
        raise Malformed(f"list of {count} values in {stop - position} bytes: it does not fit its frame")
    return code, count, position, stop


def _descriptor(buffer: bytes) -> tuple[int, int]:
    if buffer[:1] != b"\x00":
        raise Malformed("no descriptor, expected a performative")
    value, position = decode(buffer, 1)
    if value.kind == "symbol":
        return _CODES.get(str(value.payload), 0), position
    if not isinstance(value.payload, int):
        raise Malformed(f"the descriptor is a {value.kind}")
    return value.payload, position


_CODES = {
    f"amqp:{name}:list": code
    for first, names in (
        (0x10, "open begin attach flow transfer disposition detach end close"),
        (0x1D, "error"),
        (0x23, "received accepted rejected released modified source target"),
        (0x30, "coordinator declare discharge"),
        (0x34, "transactional-state"),
        (0x40, "sasl-mechanisms sasl-init"),
        (0x44, "sasl-outcome"),
    )
    for code, name in enumerate(names.split(), first)
}
"""The numbers that symbolic descriptors mean."""


class Fields:
    """The fields of one performative by position, each checked for its type when it is read; absent ones are null."""

    def __init__(self, name: str, fields: Sequence[Field]) -> None:
        self._name = name
        self._fields = fields

    def _field(self, number: int) -> Field:
        return self._fields[number] if number < len(self._fields) else None

    def _wrong(self, number: int, expected: str) -> ConnectionViolation:
        seen = self._field(number)
        what = "null" if seen is None else seen.kind if isinstance(seen, Value) else type(seen).__name__
        return ConnectionViolation(DECODE_ERROR, f"{self._name}: field {number} is {what}, expected {expected}")

    def number(self, number: int, most: int = 0xFFFF_FFFF) -> int | None:
        """Return an unsigned number."""
        field = self._field(number)
        if field is None or (type(field) is int and 0 <= field <= most):
            return field
        raise self._wrong(number, f"a number from 0 to {most}")

    def required_number(self, number: int) -> int:
        """Return a required unsigned number."""
        field = self.number(number)
        if field is None:
            raise self._wrong(number, "an unsigned number")
        return field

    def flag(self, number: int) -> bool:
        """Return a boolean, False for null."""
        field = self._field(number)
        if field is None or field is True or field is False:
            return field is True
        raise self._wrong(number, "a boolean")

    def _of[Kind](self, number: int, kind: type[Kind], expected: str) -> Kind | None:
        field = self._field(number)
        if field is None or isinstance(field, kind):
            return field
        raise self._wrong(number, expected)

    def text(self, number: int) -> str | None:
        """Return a string or symbol."""
        return self._of(number, str, "text")

    def required_text(self, number: int) -> str:
        """Return a required string or symbol."""
        field = self.text(number)
        if field is None:
            raise self._wrong(number, "text")
        return field

    def binary(self, number: int) -> bytes | None:
        """Return a binary."""
        return self._of(number, bytes, "a binary")

    def symbols(self, number: int) -> tuple[str, ...]:
        """Return a field of several symbols, for which a single one may be sent without its array (part 1, 1.4)."""
        field = self._field(number)
        texts: Sequence[object] = () if field is None else (field,)
        if isinstance(field, Value) and isinstance(field.payload, Array):
            texts = [item.payload for item in field.payload.items]
        symbols = tuple(text for text in texts if isinstance(text, str) and text.isascii())
        if len(symbols) < len(texts):
            raise self._wrong(number, "a symbol or an array of symbols")
        return symbols

    def value(self, number: int) -> Value | None:
        """Return a map, list, array or described value."""
        return self._of(number, Value, "a compound value")


def fields_of(value: Value | None, name: str) -> tuple[int, Fields]:
    """Return the descriptor and the fields of a described list such as a source or a delivery state."""
    described = None if value is None else value.payload
    if not isinstance(described, Described) or described.value.kind != "list":
        raise ConnectionViolation(DECODE_ERROR, f"{name}: expected a described list")
    code = described.descriptor.payload
    if not isinstance(code, int):
        code = _CODES.get(str(code), 0)
    items: Sequence[Value] = described.value.payload  # type: ignore[assignment] # its kind is list
    plain: list[Field] = [item.payload if item.kind in _SIMPLE else item for item in items]  # type: ignore[misc] # likewise
    return code, Fields(name, plain)


def compose_list(code: int, fields: Sequence[bytes]) -> bytes:
    """Return a described list of encoded fields, trailing nulls included: azure-eventhub requires all fields."""
    content = b"".join(fields)
    if len(content) < 0xFF:
        return b"\x00\x53%c\xc0%c%c%b" % (code, len(content) + 1, len(fields), content)
    return b"\x00\x53%c\xd0%b%b%b" % (code, _UINT32.pack(len(content) + 4), _UINT32.pack(len(fields)), content)


def number_field(number: int | None) -> bytes:
    """Return an encoded uint."""
    if number is None:
        return NULL
    # Without a typed value, this saves 1.1 µs for each message that is settled.
    return b"\x70%b" % _UINT32.pack(number) if number > 0xFF else encode(uint(number))


def long_number_field(number: int | None) -> bytes:
    """Return an encoded ulong."""
    return NULL if number is None else encode(ulong(number))


def flag_field(flag: bool) -> bytes:
    """Return an encoded boolean."""
    return b"\x41" if flag else b"\x42"


def text_field(text: str | None) -> bytes:
    """Return an encoded string."""
    return NULL if text is None else encode(string(text))


def symbol_field(text: str | None) -> bytes:
    """Return an encoded symbol."""
    return NULL if text is None else encode(symbol(text))


def symbols_field(texts: Sequence[str]) -> bytes:
    """Return an encoded array of symbols, null for none."""
    return encode(array(0xB3, [symbol(text)._replace(code=0xB3) for text in texts])) if texts else NULL


def value_field(value: Value | None) -> bytes:
    """Return an encoded value."""
    return NULL if value is None else encode(value)
