"""
Requests to the nodes `$cbs` and `$management`, their arguments, and their answers.

Source: the request-response pattern of "AMQP Management 1.0" (draft), section 3.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, Self

from busway_broker import errors
from busway_broker.core.content import unprocessable
from busway_broker.core.transaction import Transaction
from busway_broker.errors import Refusal
from shared.amqp.codec import encode, items_of, pairs_of
from shared.amqp.errors import NOT_IMPLEMENTED, UNAUTHORIZED_ACCESS, AmqpError
from shared.amqp.fields import compose_list
from shared.amqp.requests import parts_of
from shared.amqp.scan import text
from shared.amqp.values import NULL, Array, Value, map_, string, symbol

_NUMBERS = frozenset(("ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long", "timestamp"))
_MAX_INT = 2**31 - 1
_MESSAGE_ID, _REPLY_TO = 0, 4
_NULL = b"\x40"
_OK = 200


@dataclass(slots=True)
class Request:
    """
    A request: application properties and the body's map by their text keys; the message id stays encoded.

    The content is the value of the body: a map or, for tokens, text. The transaction is that
    of the request, if any. A fault limits a peek to *most* messages.
    """

    message_id: bytes
    reply_to: str | None
    properties: dict[str, Value]
    body: dict[str, Value] = field(default_factory=dict)
    content: Value | None = None
    transaction: Transaction | None = None
    most: int | None = None

    @property
    def operation(self) -> str:
        """Return the name of the operation, empty if the request has none."""
        value = self.properties.get("operation")
        return value.payload if value is not None and isinstance(value.payload, str) else ""


@dataclass(slots=True)
class Response:
    """An answer: its status and body, and the condition of an error."""

    status: int
    description: str
    body: Value = field(default_factory=lambda: map_([]))
    condition: str = ""


class Keys(NamedTuple):
    """The names of the properties that have the result of a request."""

    status: str
    description: str
    condition: str


ENTITY_KEYS = Keys("statusCode", "statusDescription", "errorCondition")
NAMESPACE_KEYS = Keys("status-code", "status-description", "error-condition")
_STATUS = {
    UNAUTHORIZED_ACCESS: 401,
    errors.AUTH_FAILED: 401,
    errors.ENTITY_DISABLED: 403,
    errors.RESOURCE_LIMIT_EXCEEDED: 403,
    errors.MESSAGE_NOT_FOUND: 404,
    errors.NOT_FOUND: 404,
    errors.TIMEOUT: 408,
    errors.ENTITY_ALREADY_EXISTS: 409,
    errors.MESSAGE_LOCK_LOST: 410,
    errors.SESSION_LOCK_LOST: 410,
    errors.INTERNAL_ERROR: 500,
    NOT_IMPLEMENTED: 501,
    errors.SERVER_BUSY: 503,
}


@dataclass(frozen=True, slots=True)
class Node:
    """A node that answers requests; that of an entity takes part in transactions."""

    path: str
    answer: Callable[[Request], Response | None]
    keys: Keys = NAMESPACE_KEYS


def refused(refusal: AmqpError, statuses: Mapping[str, int] = _STATUS, other: int = 400) -> Response:
    """Return the answer to a request that was refused; conditions that are not in *statuses* have an *other* one."""
    return Response(statuses.get(refusal.condition, other), refusal.description, condition=refusal.condition)


def read_request(message: bytes) -> Request:
    """Return the request in an encoded message, or Malformed."""
    fields, properties, content = parts_of(message)
    fields += [_NULL] * (_REPLY_TO + 1 - len(fields))
    body = by_text(content) if content is not None and content.kind == "map" else {}
    named = {} if properties is None else by_text(properties)
    return Request(fields[_MESSAGE_ID], text(fields[_REPLY_TO]), named, body, content)


def by_text(value: Value) -> dict[str, Value]:
    """Return the pairs of a map by their text keys."""
    return {key.payload: item for key, item in pairs_of(value) if isinstance(key.payload, str)}


def encode_response(request: Request, response: Response, node: Node) -> bytes:
    """Return the message with the answer of *node* to a request."""
    keys = node.keys
    properties = {keys.status: Value(0x71, response.status), keys.description: string(response.description)}
    if response.condition:
        properties[keys.condition] = symbol(response.condition)
    pairs = [(string(name), value) for name, value in properties.items()]
    return b"".join(
        (
            compose_list(0x73, [*[_NULL] * 5, request.message_id]),
            b"\x00\x53\x74",
            encode(map_(pairs)),
            b"\x00\x53\x77",
            encode(response.body),
        )
    )


def ok(body: Value | None = None) -> Response:
    """Return the answer to a request that was successful."""
    return Response(_OK, "OK") if body is None else Response(_OK, "OK", body)


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
