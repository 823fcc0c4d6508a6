"""
The objects that Azure's host decodes a message to, and the two ways in which it fails.

A value that is neither a compound nor described is the `bytes` that .NET writes for it, format code included: .NET has
one encoding for each type and value, so these bytes are the type and the value, and equal bytes are equal objects.
"""

from dataclasses import dataclass
from typing import Final

from shared.errors import MessageRejected

# The first millisecond after DateTime.MaxValue, which is what .NET writes for DateTime.MaxValue: it rounds up.
END_OF_TIME: Final = 253_402_300_800_000
MAX_TIMESTAMP: Final = END_OF_TIME - 1
TICKS: Final = 10_000  # of 100 ns in a millisecond
MAX_TICKS: Final = END_OF_TIME * TICKS - 1  # DateTime.MaxValue, in ticks since 1970

NULL: Final = b"\x40"

type Object = bytes | List | Map | Array | ObjectArray | Described | BinaryKey


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


# All compare by reference, as in .NET, so none has `__eq__`.


@dataclass(eq=False, slots=True)
class List:
    """List<object>, of a list or a sequence."""

    items: list[Object]


@dataclass(eq=False, slots=True)
class Map:
    """AmqpMap, a dictionary: of several equal keys, the last value stays, at the position of the first."""

    entries: dict[Object, Object]


@dataclass(eq=False, slots=True)
class Array:
    """An array of a simple type: the format code of its elements, and these one after the other at full width."""

    code: int
    count: int
    content: bytes


@dataclass(eq=False, slots=True)
class ObjectArray:
    """An array of lists, maps or described values, by the format code and the name that .NET has for their type."""

    code: int
    type_name: str
    items: list[Object]


@dataclass(eq=False, slots=True)
class Described:
    """DescribedType, or with `is_known` one of the types of AMQP's own frames, whose descriptor is a number."""

    descriptor: Object
    value: Object
    is_known: bool = False


@dataclass(eq=False, slots=True)
class BinaryKey:
    """An encoded binary that is the key of a map: ArraySegment<byte> compares the arrays, not their content."""

    content: bytes
