"""
Requests to a node of the peer, such as `$cbs` and `$management`, and their answers, without I/O.

Source: the request-response pattern of "AMQP Management 1.0" (draft), section 3; "AMQP Claims-based Security" (draft).
"""

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, override

from shared.amqp import performatives
from shared.amqp.client import ClientSession
from shared.amqp.codec import decode, encode, pairs_of
from shared.amqp.dispositions import Disposition
from shared.amqp.errors import AmqpError
from shared.amqp.fields import NULL, compose_list, text_field
from shared.amqp.fields import fields_of as fields_of_list
from shared.amqp.links import Receiver, Sender
from shared.amqp.performatives import Attach
from shared.amqp.scan import text
from shared.amqp.sections import VALUE, body_parts, descriptor, fields_of, split
from shared.amqp.values import Value, described, list_, map_, string, ulong

_SOURCE, _TARGET = 0x28, 0x29
_MIXED, _SETTLED, _FIRST = 2, 1, 0
_CREDIT = 100
_CORRELATION_ID = 5
_STATUS = ("statusCode", "status-code")
_DESCRIPTION = ("statusDescription", "status-description")
_CONDITION = ("errorCondition", "error-condition")


class Answer(NamedTuple):
    """An answer: its status, as in HTTP, the reason for it, and its content."""

    status: int
    condition: str
    description: str
    content: Value | None


type Answered = Callable[[Answer | Exception], None]


class Requests:
    """A pair of links to one node, over which several requests may wait for their answers."""

    def __init__(self, session: ClientSession, node: str, name: str) -> None:
        """Open the links in a session; *name* is unique on the connection."""
        self._reply_to = name
        self._numbers = itertools.count(1)
        self._waiting: dict[str, Answered] = {}
        here, there = list_([string(name)]), list_([string(node)])
        asking = described(ulong(_SOURCE), here), described(ulong(_TARGET), there)
        answers = described(ulong(_SOURCE), there), described(ulong(_TARGET), here)
        self._sender = _Asking(session, Attach(f"{name}:asking", 0, False, _MIXED, _FIRST, *asking, 0, None, (), None))
        self._sender.requests = self
        receiver = _Answers(
            session, Attach(f"{name}:answers", 0, True, _SETTLED, _FIRST, *answers, None, None, (), None)
        )
        receiver.requests = self
        self._receiver = receiver
        session.attach(self._sender)
        session.attach(receiver)
        receiver.grant(_CREDIT)

    @property
    def failure(self) -> Exception | None:
        """Return the error that ended a link, None while both are usable."""
        return self._sender.failure or self._receiver.failure

    def ask(self, properties: Mapping[str, Value], content: Value, answered: Answered) -> str:
        """Send a request and return its id; *answered* gets its answer, or the error that ended the links before."""
        identity = f"{self._reply_to}:{next(self._numbers)}"
        self._waiting[identity] = answered
        message = b"".join(
            (
                compose_list(0x73, [text_field(identity), *[NULL] * 3, text_field(self._reply_to)]),
                b"\x00\x53\x74",
                encode(map_((string(name), value) for name, value in properties.items())),
                b"\x00\x53\x77",
                encode(content),
            )
        )
        self._sender.unsent.append((identity, message))
        self._sender.pump()
        return identity

    def forget(self, identity: str) -> None:
        """Stop waiting for an answer."""
        self._waiting.pop(identity, None)

    def answer(self, identity: str, answer: Answer | Exception) -> None:
        """Pass on an answer, if somebody waits for it."""
        answered = self._waiting.pop(identity, None)
        if answered is not None:
            answered(answer)

    def end(self, failure: Exception) -> None:
        """Pass on the error that ended the links."""
        for identity in list(self._waiting):
            self.answer(identity, failure)


class _Asking(Sender):
    """The link on which requests leave."""

    requests: Requests

    def __init__(self, session: ClientSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self.unsent: deque[tuple[str, bytes]] = deque()
        self._unanswered: dict[int, str] = {}

    @override
    def pump(self) -> None:
        while self.unsent and self.credit > 0 and self.session.has_window and self.failure is None:
            identity, message = self.unsent.popleft()
            self._unanswered[self.send(message)] = identity

    @override
    def on_acceptance(self, first: int, last: int) -> None:
        for number in range(first, min(last, first + len(self._unanswered)) + 1):
            self._unanswered.pop(number, None)

    @override
    def on_disposition(self, found: Disposition) -> None:
        identity = self._unanswered.pop(found.first, None) if found.role else None
        if identity is not None and found.state is not None:
            code, fields = fields_of_list(found.state, "delivery state")
            if code != performatives.ACCEPTED:
                error = performatives.read_error(fields.value(0)) if code == performatives.REJECTED else None
                self.requests.answer(identity, error or AmqpError("", "the request was not accepted"))

    @override
    def on_end(self, failure: Exception) -> None:
        self.requests.end(failure)


class _Answers(Receiver):
    """The link on which answers arrive."""

    requests: Requests

    @override
    def on_delivery(self, delivery_id: int, tag: bytes, message: bytes, *, settled: bool) -> None:
        if self.credit < _CREDIT // 2:
            self.grant(_CREDIT)
        if not settled:
            self.settle([delivery_id], performatives.ACCEPTED_STATE, settled=True)
        identity, answer = _read(message)
        self.requests.answer(identity, answer)

    @override
    def on_end(self, failure: Exception) -> None:
        self.requests.end(failure)


def parts_of(message: bytes) -> tuple[list[bytes], Value | None, Value | None]:
    """Return the encoded properties, the application properties, and the value in the body of a message."""
    sections = split(message)
    applied = sections.application_properties
    properties = decode(applied, descriptor(applied, 0)[1])[0] if applied else None
    parts = body_parts(sections.body)
    return [*fields_of(sections.properties)], properties, parts[0][1] if parts and parts[0][0] == VALUE else None


def _read(message: bytes) -> tuple[str, Answer]:
    """Return the id of the request that a message answers, and the answer."""
    fields, properties, content = parts_of(message)
    identity = text(fields[_CORRELATION_ID]) if len(fields) > _CORRELATION_ID else None
    found = {} if properties is None else {key.payload: item.payload for key, item in pairs_of(properties)}
    status, description, condition = (
        next((found[name] for name in names if name in found), None) for names in (_STATUS, _DESCRIPTION, _CONDITION)
    )
    code = status if isinstance(status, int) else 0
    return identity or "", Answer(code, str(condition or ""), str(description or ""), content)
