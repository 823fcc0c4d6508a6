"""
The objects that Azure's host decodes a message to, and the two ways in which it fails.

A value that is neither a compound nor described is the `bytes` that .NET writes for it, format code included: .NET has
one encoding for each type and value, so these bytes are the type and the value, and equal bytes are equal objects.
"""

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


class Reference:
    """An object that equals only itself, because .NET compares such objects by reference."""

    __slots__ = ()


class List(Reference):
    """List<object>, of a list or a sequence."""

    __slots__ = ("items",)

    def __init__(self, items: list[Object]) -> None:
        """Hold the decoded items."""
        self.items = items


class Map(Reference):
    """AmqpMap, a dictionary: of several equal keys, the last value stays, at the position of the first."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[Object, Object]) -> None:
        """Hold the decoded entries."""
        self.entries = entries


class Array(Reference):
    """An array of a simple type: the format code of its elements, and these one after the other at full width."""

    __slots__ = ("code", "content", "count")

    def __init__(self, code: int, count: int, content: bytes) -> None:
        """Hold the elements."""
        self.code, self.count, self.content = code, count, content


class ObjectArray(Reference):
    """An array of lists, maps or described values, by the format code that .NET writes for it."""

    __slots__ = ("code", "items", "type_name")

    def __init__(self, code: int, type_name: str, items: list[Object]) -> None:
        """Hold the elements; *type_name* is .NET's name of their type."""
        self.code, self.type_name, self.items = code, type_name, items


class Described(Reference):
    """DescribedType, or with `is_known` one of the types of AMQP's own frames, whose descriptor is a number."""

    __slots__ = ("descriptor", "is_known", "value")

    def __init__(self, descriptor: Object, value: Object, *, is_known: bool = False) -> None:
        """Hold the decoded parts."""
        self.descriptor, self.value, self.is_known = descriptor, value, is_known


class BinaryKey(Reference):
    """A binary that is the key of a map: ArraySegment<byte> compares the arrays, not their content."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        """Hold the encoded binary."""
        self.content = content
