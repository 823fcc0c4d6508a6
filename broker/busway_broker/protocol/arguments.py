"""The arguments of a management request, each checked for its type when it is read."""

import uuid
from collections.abc import Mapping
from typing import NoReturn, Self

from busway_broker import errors
from busway_broker.core.content import unprocessable
from busway_broker.errors import Refusal
from busway_broker.protocol.requests import by_text
from shared.amqp.codec import items_of
from shared.amqp.values import NULL, Array, Value

_NUMBERS = frozenset(("ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long", "timestamp"))
_MAX_INT = 2**31 - 1


class Arguments:
    """Values by name; each getter raises a Refusal for a value that is missing or of another type."""

    def __init__(self, pairs: Mapping[str, Value]) -> None:
        self._pairs = pairs

    @classmethod
    def of(cls, value: Value) -> Self:
        """Return the pairs of a map."""
        if value.kind != "map":
            raise Refusal(errors.ARGUMENT_ERROR, f"got a {value.kind}, expected a map")
        return cls(by_text(value))

    def __contains__(self, name: str) -> bool:
        return self._pairs.get(name, NULL) != NULL

    def value(self, name: str) -> Value:
        """Return a value of any type."""
        return self._pairs.get(name, NULL)

    def _wrong(self, name: str, expected: str) -> NoReturn:
        raise Refusal(errors.ARGUMENT_ERROR, f"{name}: got a {self.value(name).kind}, expected {expected}")

    def number(self, name: str) -> int:
        """Return a whole number or timestamp."""
        value = self.value(name)
        if value.kind not in _NUMBERS or not isinstance(value.payload, int):
            self._wrong(name, "a whole number")
        return value.payload

    def count(self, name: str) -> int:
        """Return a number of things, at most what an int holds."""
        count = self.number(name)
        if not 0 <= count <= _MAX_INT:
            raise Refusal(errors.ARGUMENT_OUT_OF_RANGE, f"{name}: got {count}, expected 0 to {_MAX_INT}")
        return count

    def optional_text(self, name: str) -> str | None:
        """Return text, None for null."""
        payload = self.value(name).payload
        if payload is not None and not isinstance(payload, str):
            self._wrong(name, "text")
        return payload

    def text(self, name: str) -> str:
        """Return text."""
        text = self.optional_text(name)
        if text is None:
            self._wrong(name, "text")
        return text

    def optional_binary(self, name: str) -> bytes | None:
        """Return a binary, None for null."""
        payload = self.value(name).payload
        if payload is not None and not isinstance(payload, bytes):
            self._wrong(name, "a binary")
        return payload

    def binary(self, name: str) -> bytes:
        """Return a binary."""
        content = self.optional_binary(name)
        if content is None:
            self._wrong(name, "a binary")
        return content

    def mapping(self, name: str) -> Mapping[str, Value]:
        """Return the pairs of a map, none for null."""
        value = self.value(name)
        if value == NULL:
            return {}
        if value.kind != "map":
            self._wrong(name, "a map")
        return by_text(value)

    def _items(self, name: str) -> tuple[Value, ...]:
        value = self.value(name)
        if isinstance(value.payload, Array):
            return value.payload.items
        if value.kind != "list":
            self._wrong(name, "an array")
        return items_of(value)

    def numbers(self, name: str) -> list[int]:
        """Return an array of whole numbers."""
        numbers = [item.payload for item in self._items(name)]
        if not all(isinstance(number, int) for number in numbers):
            self._wrong(name, "an array of whole numbers")
        return numbers  # type: ignore[return-value] # just checked

    def lock_tokens(self, name: str) -> list[bytes]:
        """Return an array of uuids as lock tokens, whose bytes are in the order of .NET's Guid."""
        tokens = [item.payload for item in self._items(name)]
        if not all(isinstance(token, uuid.UUID) for token in tokens):
            raise unprocessable()  # Azure/amqpnetlite issue 173
        return [token.bytes_le for token in tokens if isinstance(token, uuid.UUID)]
