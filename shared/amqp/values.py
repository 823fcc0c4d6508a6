"""
Typed AMQP 1.0 values.

A value keeps its format code, so that it encodes to the same bytes again and its type is never guessed: 1 as an int, a
long and a timestamp are three different values.

Source: OASIS AMQP 1.0, part 1 "Types".
"""

import uuid as uuid_module
from collections.abc import Callable, Iterable
from typing import NamedTuple

from shared.errors import MessageRejected


class Malformed(MessageRejected):
    """Bytes that are not valid AMQP 1.0, or that exceed a limit of this decoder."""

    def __init__(self, description: str) -> None:
        """Describe where the bytes are wrong, what was found and what was expected."""
        super().__init__("MalformedMessage", description)


class Described(NamedTuple):
    """A value annotated with a descriptor."""

    descriptor: "Value"
    value: "Value"


class Array(NamedTuple):
    """
    Values that share one constructor.

    Each item has the constructor's format code; descriptors start with the outermost. The code is None for an empty
    array that was encoded without a constructor.
    """

    code: int | None
    descriptors: "tuple[Value, ...]"
    items: "tuple[Value, ...]"


type Payload = (
    bool
    | int
    | float
    | str
    | bytes
    | uuid_module.UUID
    | tuple[Value, ...]
    | tuple[tuple[Value, Value], ...]
    | Array
    | Described
    | None
)


class Value(NamedTuple):
    """
    One AMQP value: the format code it is encoded with and its content.

    Units: a timestamp is milliseconds since 1970 UTC; decimals are their IEEE 754 bytes; an unknown type its raw bytes.
    """

    code: int
    payload: Payload

    @property
    def kind(self) -> str:
        """Return the name of the AMQP type, `described` for a described value and `unknown` for an unassigned code."""
        return KINDS.get(self.code, "unknown")


KINDS = {
    code: kind
    for kind, codes in {
        "described": (0x00,),
        "null": (0x40,),
        "boolean": (0x41, 0x42, 0x56),
        "ubyte": (0x50,),
        "ushort": (0x60,),
        "uint": (0x43, 0x52, 0x70),
        "ulong": (0x44, 0x53, 0x80),
        "byte": (0x51,),
        "short": (0x61,),
        "int": (0x54, 0x71),
        "long": (0x55, 0x81),
        "float": (0x72,),
        "double": (0x82,),
        "decimal32": (0x74,),
        "decimal64": (0x84,),
        "decimal128": (0x94,),
        "char": (0x73,),
        "timestamp": (0x83,),
        "uuid": (0x98,),
        "binary": (0xA0, 0xB0),
        "string": (0xA1, 0xB1),
        "symbol": (0xA3, 0xB3),
        "list": (0x45, 0xC0, 0xD0),
        "map": (0xC1, 0xD1),
        "array": (0xE0, 0xF0),
    }.items()
    for code in codes
}

NULL = Value(0x40, None)
TRUE = Value(0x41, payload=True)
FALSE = Value(0x42, payload=False)

_SHORT = 0xFF


def boolean(payload: bool) -> Value:
    """Return a boolean in its one-byte encoding."""
    return TRUE if payload else FALSE


def _integer(kind: str, minimum: int, maximum: int, code_of: Callable[[int], int]) -> Callable[[int], Value]:
    def constructor(payload: int) -> Value:
        if not minimum <= payload <= maximum:
            raise ValueError(f"AMQP {kind}: {payload} is out of range, expected {minimum} to {maximum}")
        return Value(code_of(payload), payload)

    constructor.__name__ = kind
    constructor.__doc__ = f"Return a {kind} in its smallest encoding; a ValueError out of range."
    return constructor


def _unsigned(zero: int, small: int, full: int) -> Callable[[int], int]:
    return lambda payload: zero if payload == 0 else small if payload <= _SHORT else full


def _signed(small: int, full: int) -> Callable[[int], int]:
    return lambda payload: small if -0x80 <= payload <= 0x7F else full


ubyte = _integer("ubyte", 0, 2**8 - 1, lambda _: 0x50)
ushort = _integer("ushort", 0, 2**16 - 1, lambda _: 0x60)
uint = _integer("uint", 0, 2**32 - 1, _unsigned(0x43, 0x52, 0x70))
ulong = _integer("ulong", 0, 2**64 - 1, _unsigned(0x44, 0x53, 0x80))
byte = _integer("byte", -(2**7), 2**7 - 1, lambda _: 0x51)
short = _integer("short", -(2**15), 2**15 - 1, lambda _: 0x61)
int_ = _integer("int", -(2**31), 2**31 - 1, _signed(0x54, 0x71))
long = _integer("long", -(2**63), 2**63 - 1, _signed(0x55, 0x81))
timestamp = _integer("timestamp", -(2**63), 2**63 - 1, lambda _: 0x83)


def float32(payload: float) -> Value:
    """Return a float, which is rounded to 32 bits when it is encoded."""
    return Value(0x72, payload)


def double(payload: float) -> Value:
    """Return a double."""
    return Value(0x82, payload)


def decimal128(payload: bytes) -> Value:
    """Return a decimal128 from its 16 bytes, big-endian, binary integer significand."""
    if len(payload) != 16:
        raise ValueError(f"AMQP decimal128: got {len(payload)} bytes, expected 16")
    return Value(0x94, payload)


def char(payload: str) -> Value:
    """Return a char from a string of one code point."""
    if len(payload) != 1:
        raise ValueError(f"AMQP char: got {len(payload)} code points, expected 1")
    return Value(0x73, payload)


def uuid(payload: uuid_module.UUID) -> Value:
    """Return a uuid."""
    return Value(0x98, payload)


def binary(payload: bytes) -> Value:
    """Return a binary in its smallest encoding."""
    return Value(0xA0 if len(payload) <= _SHORT else 0xB0, payload)


def string(payload: str) -> Value:
    """Return a string in its smallest encoding."""
    is_short = len(payload) <= _SHORT and (payload.isascii() or len(payload.encode()) <= _SHORT)
    return Value(0xA1 if is_short else 0xB1, payload)


def symbol(payload: str) -> Value:
    """Return a symbol, which must be ASCII, in its smallest encoding."""
    if not payload.isascii():
        raise ValueError("AMQP symbol: expected ASCII only")
    return Value(0xA3 if len(payload) <= _SHORT else 0xB3, payload)


def list_(items: Iterable[Value]) -> Value:
    """Return a list in its general encoding (an empty one in one byte)."""
    payload = tuple(items)
    return Value(0xD0 if payload else 0x45, payload)


def map_(pairs: Iterable[tuple[Value, Value]]) -> Value:
    """Return a map in its general encoding, the pairs in the order given."""
    return Value(0xD1, tuple(pairs))


def described(descriptor: Value, value: Value) -> Value:
    """Return *value* described by *descriptor*."""
    return Value(0x00, Described(descriptor, value))


def array(code: int, items: Iterable[Value]) -> Value:
    """Return an array in its general encoding; each item must have the format *code*."""
    payload = tuple(items)
    for item in payload:
        if item.code != code:
            raise ValueError(
                f"AMQP array: an item has format code 0x{item.code:02x}, expected 0x{code:02x} as the array's"
            )
    return Value(0xF0, Array(code, (), payload))
