"""
Nodes that answer requests: `$cbs` and `$management`.

A request comes on one link of a pair, its answer leaves on the other: the one whose target is the request's reply-to,
or, as azure-servicebus sends no reply-to with its tokens, the one in the same session from the same node.

Source: the request-response pattern of "AMQP Management 1.0" (draft), section 3.
"""

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local.broker import errors
from local.broker.errors import Refusal
from local.broker.faults import Operation
from local.broker.protocol.fields import compose_list
from local.broker.protocol.incoming_link import IncomingLink
from local.broker.protocol.outgoing_link import OutgoingLink
from local.broker.protocol.performatives import TAG_SIZE, Attach
from local.broker.protocol.struck import perform
from local.broker.protocol.terminus import address_of
from shared.amqp.codec import decode, encode, pairs_of
from shared.amqp.scan import list_fields, text
from shared.amqp.sections import VALUE, body_parts, descriptor, split
from shared.amqp.values import Value, map_, string, symbol

if TYPE_CHECKING:
    from local.broker.protocol.session import Session

_MAX_REQUEST_SIZE = 1024 * 1024
_MESSAGE_ID, _REPLY_TO = 0, 4
_NULL = b"\x40"
_OK = 200
_STATUS = {
    errors.ENTITY_DISABLED: 403,
    errors.INTERNAL_ERROR: 500,
    errors.NOT_FOUND: 404,
    errors.RESOURCE_LIMIT_EXCEEDED: 403,
    errors.SERVER_BUSY: 503,
    errors.TIMEOUT: 408,
}


@dataclass(slots=True)
class Request:
    """
    A request: application properties and the body's map by their text keys; the message id stays encoded.

    The content is the value of the body, be it a map or, as with tokens, text.
    """

    message_id: bytes
    reply_to: str | None
    properties: dict[str, Value]
    body: dict[str, Value] = field(default_factory=dict)
    content: Value | None = None

    @property
    def operation(self) -> str:
        """Return the name of the operation, empty if the request has none."""
        value = self.properties.get("operation")
        return value.payload if value is not None and isinstance(value.payload, str) else ""


@dataclass(slots=True)
class Response:
    """An answer: status, what stands beside it in the application properties, and the body."""

    status: int
    description: str
    body: Value = field(default_factory=lambda: map_([]))
    properties: dict[str, Value] = field(default_factory=dict)


type Answer = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class Node:
    """What answers at an address; the names of the status properties differ between Service Bus and Event Hubs."""

    path: str
    answer: Answer
    status_key: str
    description_key: str


class RequestLink(IncomingLink):
    """The link on which requests come."""

    def __init__(self, session: "Session", attach: Attach, node: Node) -> None:
        super().__init__(session, attach, _MAX_REQUEST_SIZE)
        self._node = node

    def accept(self, message: bytes, message_format: int) -> None:  # noqa: ARG002 - requests come one by one
        """Answer a request."""
        request = read_request(message)
        answer_to = self._response_link(request.reply_to)
        if answer_to is None:
            raise Refusal(errors.NOT_FOUND, f"{self._node.path}: no link is attached to send the answer on")
        response = self._respond(request)
        if response is not None:
            answer_to.answer(_encode(request, response, self._node))

    def _answer(self, message: bytes, size: int, message_format: int) -> bytes | None:
        """Settle a request; a fault strikes what is asked for, not the delivery that asks."""
        return self._outcome(message, size, message_format)

    def _respond(self, request: Request) -> Response | None:
        fault = self.faults.strike(self._operation(request), self._entity_path) if self.faults.is_set else None
        if fault is None:
            return self._node.answer(request)
        return perform(
            fault, self.session.connection, self._entity_path, lambda: self._node.answer(request), self._refuse
        )

    @property
    def _entity_path(self) -> str:
        return self._node.path.removesuffix("/$management")

    def _operation(self, request: Request) -> Operation:
        if self._node.path == "$cbs":
            return Operation.AUTHORIZE
        return Operation.SEND if request.operation.endswith("schedule-message") else Operation.MANAGE

    def _refuse(self, refusal: Refusal) -> Response:
        condition = "errorCondition" if self._node.status_key == "statusCode" else "error-condition"
        return Response(
            _STATUS.get(refusal.condition, 400),
            refusal.description,
            properties={condition: symbol(refusal.condition)},
        )

    def _response_link(self, reply_to: str | None) -> "ResponseLink | None":
        same_session = None
        for session in self.session.connection.sessions.values():
            for link in session.links.values():
                if isinstance(link, ResponseLink) and not link.is_over and link.node_path == self._node.path:
                    if reply_to is not None and link.address == reply_to:
                        return link
                    if session is self.session:
                        same_session = link
        return same_session


class ResponseLink(OutgoingLink):
    """The link on which answers leave."""

    def __init__(self, session: "Session", attach: Attach, node: Node) -> None:
        super().__init__(session, attach)
        self.node_path = node.path
        self.address = address_of(attach.target)
        self._answers: deque[bytes] = deque()
        self._numbers = itertools.count(1)

    def open(self) -> None:
        """Open the link."""
        self.attached()

    def _is_let_through(self) -> bool:
        """Let answers pass: a fault strikes what was asked for."""
        return True

    def answer(self, message: bytes) -> None:
        """Send an answer as soon as the peer takes it."""
        self._answers.append(message)
        self.pump()

    def pump(self) -> None:
        """Send the answers that the peer takes."""
        while self._answers and self.can_take():
            self.send(next(self._numbers).to_bytes(TAG_SIZE), self._answers.popleft(), settled=True)


def read_request(message: bytes) -> Request:
    """Return the request in an encoded message, or Malformed."""
    sections = split(message)
    section = sections.properties
    fields = list_fields(section, descriptor(section, 0)[1], len(section)) if section else []
    fields += [_NULL] * (_REPLY_TO + 1 - len(fields))
    properties: dict[str, Value] = {}
    if sections.application_properties:
        value, _ = decode(sections.application_properties, descriptor(sections.application_properties, 0)[1])
        properties = by_text(value)
    body: dict[str, Value] = {}
    parts = body_parts(sections.body)
    content = parts[0][1] if parts and parts[0][0] == VALUE else None
    if content is not None and content.kind == "map":
        body = by_text(content)
    return Request(fields[_MESSAGE_ID], text(fields[_REPLY_TO]), properties, body, content)


def by_text(value: Value) -> dict[str, Value]:
    """Return the pairs of a map by their text keys."""
    return {key.payload: item for key, item in pairs_of(value) if isinstance(key.payload, str)}


def _encode(request: Request, response: Response, node: Node) -> bytes:
    status = Value(0x71, response.status)
    properties = {node.status_key: status, node.description_key: string(response.description)} | response.properties
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
    """Return the answer that all went well."""
    return Response(_OK, "OK") if body is None else Response(_OK, "OK", body)
