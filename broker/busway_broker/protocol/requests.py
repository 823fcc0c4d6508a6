"""
Requests to the nodes `$cbs` and `$management`, and their answers.

Source: the request-response pattern of "AMQP Management 1.0" (draft), section 3.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from busway_broker import errors
from busway_broker.core.transaction import Transaction
from shared.amqp.codec import encode, pairs_of
from shared.amqp.errors import NOT_IMPLEMENTED, UNAUTHORIZED_ACCESS, AmqpError
from shared.amqp.fields import compose_list
from shared.amqp.requests import parts_of
from shared.amqp.scan import text
from shared.amqp.values import Value, map_, string, symbol

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
    """The names of the properties that say what became of a request."""

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
