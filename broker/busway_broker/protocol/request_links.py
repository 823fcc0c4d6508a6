"""
Links to the nodes `$cbs` and `$management`, and the node `$cbs`, which clients put their tokens on.

A request arrives on one link of a pair and its answer leaves on the other: the one whose target is the request's
reply-to. azure-servicebus sends no reply-to with its tokens: the link from the same node in the same session is used.

Source: "AMQP Claims-based Security" (OASIS working draft); azure-servicebus and @azure/core-amqp for what they send.
"""

import itertools
from collections import deque

from busway_broker import errors
from busway_broker.core.transaction import Transaction
from busway_broker.errors import Refusal
from busway_broker.faults import PEEKED, Operation
from busway_broker.protocol.claims import Claims
from busway_broker.protocol.fault_effects import apply_fault
from busway_broker.protocol.incoming_link import IncomingLink
from busway_broker.protocol.link_session import LinkSession, ResponsePath
from busway_broker.protocol.outgoing_link import TAG_SIZE, OutgoingLink
from busway_broker.protocol.requests import Node, Request, Response, encode_response, ok, read_request, refused
from busway_broker.protocol.terminus import address_of
from shared.amqp.errors import AmqpError
from shared.amqp.performatives import Attach

TOKENS = "$cbs"

_MAX_REQUEST_SIZE = 1024 * 1024
_MAX_TOKEN_SIZE = 64 * 1024
# The first answer that waits counts for at most this: one that lists messages may be large.
_MAX_COUNTED_ANSWER = 1024 * 1024
_STATUS_OF_TOKEN = {errors.NOT_FOUND: 404, errors.RESOURCE_LIMIT_EXCEEDED: 403}


class RequestLink(IncomingLink):
    """A link that requests arrive on."""

    ends_when_too_large = False
    operation = None
    """A fault affects the operation that is requested, not the delivery of the request."""

    def __init__(self, session: LinkSession, attach: Attach, node: Node) -> None:
        super().__init__(session, attach, _MAX_TOKEN_SIZE if node.path == TOKENS else _MAX_REQUEST_SIZE)
        self._node = node
        self.keeps_connection = node.path != TOKENS

    def hold(self, size: int) -> None:
        """Count what the connection holds: anyone may send requests, also without a token."""
        self.session.connection.holdings.change(size)

    def accept(self, message: bytes, message_format: int) -> None:  # noqa: ARG002 - requests are never batched
        """Answer a request."""
        self._accept(read_request(message))

    def enlist(self, transaction: Transaction, message: bytes, message_format: int) -> None:
        """Answer a request within a transaction; what it changes is changed with the commit."""
        if self._entity_path == self._node.path:
            super().enlist(transaction, message, message_format)
        request = read_request(message)
        request.transaction = transaction
        self._accept(request)

    def _accept(self, request: Request) -> None:
        response_link = self._response_link(request.reply_to)
        if response_link is None:
            raise Refusal(errors.NOT_FOUND, f"{self._node.path}: no link is attached to send the answer on")
        link_name = request.properties.get("associated-link-name")
        if link_name is not None:
            self.session.connection.use_link(str(link_name.payload))
        response = self._respond(request)
        if response is not None:
            response_link.answer(encode_response(request, response, self._node))

    def _respond(self, request: Request) -> Response | None:
        fault = None
        if self.faults.is_set:
            name = request.operation.removeprefix("com.microsoft:")
            fault = self.faults.strike(self._operation(request), self._entity_path, request=name)
        if fault is None:
            return self._node.answer(request)
        request.most = PEEKED.get(fault.effect)
        return apply_fault(
            fault, self.session.connection, self._entity_path, lambda: self._node.answer(request), refused
        )

    @property
    def _entity_path(self) -> str:
        return self._node.path.removesuffix("/$management")

    def _operation(self, request: Request) -> Operation:
        if self._node.path == TOKENS:
            return Operation.AUTHORIZE
        return Operation.SEND if request.operation.endswith("schedule-message") else Operation.MANAGE

    def _response_link(self, reply_to: str | None) -> ResponsePath | None:
        same_session = None
        for link in self.session.connection.response_links:
            if link.node_path == self._node.path:
                if reply_to is not None and link.address == reply_to:
                    return link
                if link.session is self.session:
                    same_session = link
        return same_session


class ResponseLink(OutgoingLink):
    """A link that answers leave on."""

    def __init__(self, session: LinkSession, attach: Attach, node: Node) -> None:
        super().__init__(session, attach)
        self.node_path = node.path
        self.keeps_connection = node.path != TOKENS
        self.address = address_of(attach.target)
        self._answers: deque[tuple[bytes, int]] = deque()
        self._numbers = itertools.count(1)

    def open(self) -> None:
        """Open the link."""
        self.send_attach()
        self.session.connection.response_links.append(self)

    def on_release(self) -> None:
        """Send no further answers."""
        super().on_release()
        links = self.session.connection.response_links
        if self in links:
            links.remove(self)
        self.session.connection.holdings.change(-sum(counted for _, counted in self._answers))
        self._answers.clear()

    def _passes_faults(self) -> bool:
        """Let all answers pass: a fault affects the requested operation."""
        return True

    def answer(self, message: bytes) -> None:
        """Send an answer as soon as the peer accepts it."""
        counted = len(message) if self._answers else min(len(message), _MAX_COUNTED_ANSWER)
        self._answers.append((message, counted))
        self.session.connection.holdings.change(counted)
        self.pump()

    def pump(self) -> None:
        """Send the answers that the peer accepts."""
        while self._answers and self.can_take():
            message, counted = self._answers.popleft()
            self.session.connection.holdings.change(-counted)
            self.send(next(self._numbers).to_bytes(TAG_SIZE), message, settled=True)


def token_node(claims: Claims) -> Node:
    """Return the node that adds tokens to the claims of a connection."""

    def answer(request: Request) -> Response:
        if request.operation == "delete-token":
            return ok()
        if request.operation != "put-token":
            return Response(400, f"$cbs: operation {request.operation!r}, expected put-token")
        name, token = request.properties.get("name"), request.content
        audience = name.payload if name is not None and isinstance(name.payload, str) else ""
        try:
            claims.put(token.payload if token is not None and isinstance(token.payload, str) else "", audience)
            claims.check_exists(audience)
        except AmqpError as refusal:
            # With a condition azure-servicebus loses the status and the description: so it does in Azure.
            return refused(refusal, _STATUS_OF_TOKEN, 401)
        return ok()

    return Node(TOKENS, answer)
