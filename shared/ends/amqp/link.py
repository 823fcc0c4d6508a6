"""
A connection to an AMQP 1.0 broker with one link, which sends to one address.

It is the project's own protocol code, because Microsoft's AMQP client knows only what Service Bus does: it leaves a
released message without an answer and drops the reason why a link is refused (decision 0069).

A link has a connection of its own, which keeps what brokers do to a whole connection or session because of one
address away from the others. Transfers leave in the order in which they are given, as many as the broker grants credit
for, each a message with the bytes that it has.
"""

import asyncio
import ssl
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Self, override

from msgspec import Struct

from shared.amqp import performatives
from shared.amqp.client import ClientSession, Opening
from shared.amqp.dispositions import Disposition, acknowledgement
from shared.amqp.errors import AmqpError, ConnectionClosed
from shared.amqp.fields import ACCEPTED, fields_of
from shared.amqp.links import Sender
from shared.amqp.performatives import Attach
from shared.amqp.serial import SERIAL, numbers_between
from shared.amqp.socket import Socket
from shared.amqp.values import NULL, Malformed, Value, array, described, list_, string, symbol, uint, ulong
from shared.ends.amqp.endpoint import AmqpEndpoint

_WINDOW = 2**31 - 1
_CONFIGURATION = 1  # the durability of a terminus
_SOURCE, _TARGET = 0x28, 0x29
_SYMBOLS = 0xA3
_OUTCOMES = ("accepted", "rejected", "released", "modified")

type Answered = Callable[[Sequence[int], Exception | None], None]


class NoCredit(AmqpError):
    """The broker took no message in time; what was given was not sent."""


class Delivery(Struct, eq=False):
    """A message that was given to a link, and what to call with the answer to it."""

    content: bytes
    answered: Answered | None
    position: int
    """The first argument of *answered*, among those of other messages that have the same answer."""
    is_sent: bool = False
    """Whether the broker may have it."""

    def withdraw(self) -> None:
        """Do not send it if it is not sent yet, and pass no answer on."""
        self.answered = None

    def answer(self, failure: Exception | None) -> None:
        """Pass the answer on."""
        answered, self.answered = self.answered, None
        if answered is not None:
            answered([self.position], failure)


class AmqpLink(Sender):
    """An open link; any number of callers may deliver at the same time."""

    def __init__(self, session: ClientSession, socket: Socket, attach: Attach) -> None:
        """Prepare a link, the only one on *socket*; `open` makes it."""
        super().__init__(session, attach)
        self.lost = 0
        """The number of sent messages that had no answer when the link ended."""
        self.attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._socket = socket
        self._unsent: deque[Delivery] = deque()
        self._unanswered: dict[int, Delivery] = {}

    @classmethod
    async def open(cls, endpoint: AmqpEndpoint, address: str, capability: str | None) -> Self:
        """
        Return a link to *address*, a queue or topic by its *capability*; a deadline is the caller's.

        Raises: AmqpError if the broker refuses it, OSError if it cannot be reached or trusted, Malformed.
        """
        opened: asyncio.Future[Self] = asyncio.get_running_loop().create_future()
        name = f"busway-{uuid.uuid4()}"

        def attach(socket: Socket) -> None:
            session = socket.client.begin(incoming_window=_WINDOW, outgoing_window=_WINDOW, handle_max=0)
            link = cls(session, socket, _attach(name, address, capability))
            session.attach(link)
            opened.set_result(link)

        def end(failure: Exception) -> None:
            if not opened.done():
                opened.set_exception(_while_opened(failure))
                opened.exception()  # it may have no reader

        opening = Opening(name, endpoint.host_name, endpoint.mechanism, endpoint.initial_response(), endpoint.host)
        context = ssl.create_default_context() if endpoint.is_encrypted else None
        socket = await Socket.connect(endpoint.host, endpoint.port, context, opening, opened=attach, ended=end)
        try:
            link = await asyncio.shield(opened)
            await asyncio.shield(link.attached)
        except BaseException:
            socket.client.end(ConnectionClosed("the link was not opened in time"))
            raise
        if link.failure is not None:
            raise link.failure  # it came with the attach
        return link

    @override
    def on_attach(self, peer: Attach) -> None:
        super().on_attach(peer)
        if self.is_attached and not self.attached.done():
            self.attached.set_result(None)

    def give(self, content: bytes, answered: Answered, position: int = 0) -> Delivery:
        """
        Take one message, which the next `flush` sends as soon as the broker grants credit; the link must be usable.

        *answered* gets the *position*, with those of other messages that have the same answer, and None if the broker
        accepts them, or the error: the `failure` if the link ends before the answer, ConnectionClosed if it ends before
        the message is sent. What it gives to the link needs no flush.
        """
        delivery = Delivery(content, answered, position)
        self._unsent.append(delivery)
        return delivery

    def flush(self) -> None:
        """Send as much as credit and window allow."""
        self.pump()
        self._socket.flush()

    @override
    def pump(self) -> None:
        if self.failure is not None:
            return
        # Once for each message: names of this function are faster than attributes.
        unsent, unanswered, session, send = self._unsent, self._unanswered, self.session, self.send
        while unsent:
            delivery = unsent[0]
            if delivery.answered is not None:
                if self.credit <= 0 or not session.has_window:
                    return
                delivery.is_sent = True
                unanswered[send(delivery.content)] = delivery
                delivery.content = b""
            unsent.popleft()

    async def close(self) -> None:
        """Close the connection; messages in flight get an error."""
        self.end(ConnectionClosed("the link is closed"))
        await self._socket.close()

    @override
    def on_acceptance(self, first: int, last: int) -> None:
        self._answer(first, last, None)

    @override
    def on_disposition(self, found: Disposition) -> None:
        if not found.role:
            return
        state = found.state
        code = None if state is None else fields_of(state, "delivery state")[0]
        if not found.settled and code in {None, performatives.RECEIVED}:
            return  # the outcome follows
        self._answer(found.first, found.last, _error(code, state))
        if not found.settled:
            self.session.emit(acknowledgement(found.first, found.last))

    @override
    def on_end(self, failure: Exception) -> None:
        self._socket.client.end(failure)
        if not self.attached.done():
            self.attached.set_exception(_while_opened(failure))
            self.attached.exception()  # it may have no reader
        sent, unsent = list(self._unanswered.values()), list(self._unsent)
        self._unanswered.clear()
        self._unsent.clear()
        self.lost = sum(delivery.answered is not None for delivery in sent)
        for delivery in sent:
            delivery.answer(failure)
        # The broker's text may quote a message that was in flight.
        unsent_error = ConnectionClosed("the link is closed" if sent else f"the link is closed: {failure}")
        for delivery in unsent:
            delivery.answer(unsent_error)

    def _answer(self, first: int, last: int, failure: Exception | None) -> None:
        """Answer the deliveries from *first* to *last*, which is a range of any size."""
        if (last - first) & SERIAL >= _WINDOW + 1:
            raise Malformed(f"disposition: got deliveries {first} to {last}, expected the first before the last")
        unanswered, last_answered = self._unanswered, None
        calls: list[tuple[Answered, list[int]]] = []
        for number in numbers_between(first, last, unanswered):
            delivery = unanswered.pop(number)
            if (answered := delivery.answered) is None:
                continue
            delivery.answered = None
            if answered is not last_answered:
                last_answered, positions = answered, list[int]()
                calls.append((answered, positions))
            positions.append(delivery.position)
        for answered, positions in calls:
            answered(positions, failure)


def _attach(name: str, address: str, capability: str | None) -> Attach:
    """Return the attach of a sender; *capability* is `queue` or `topic` (AMQP JMS mapping), None for neither."""
    outcomes = array(_SYMBOLS, [symbol(f"amqp:{outcome}:list") for outcome in _OUTCOMES])
    source = described(ulong(_SOURCE), list_([string(name), uint(0), symbol("session-end"), *[NULL] * 6, outcomes]))
    capabilities = NULL if capability is None else array(_SYMBOLS, [symbol(capability)])
    # RabbitMQ 3 creates the queue of an address such as /queue/orders, and a durable one only for a durable target.
    target = described(ulong(_TARGET), list_([string(address), uint(_CONFIGURATION), *[NULL] * 4, capabilities]))
    # It sends unsettled, and the receiver settles first.
    return Attach(name, 0, False, 0, 0, source, target, 0, None, (), None)


def _while_opened(failure: Exception) -> Exception:
    is_lost = type(failure) is ConnectionError
    return ConnectionError("the broker closed the connection while it was opened") if is_lost else failure


def _error(code: int | None, state: Value | None) -> AmqpError | None:
    """Return the error of an outcome, None for accepted."""
    if state is ACCEPTED or code == performatives.ACCEPTED:
        return None
    if code is None:
        # Settled without a state: the broker forgets it, which AMQP 1.0 has no other meaning for.
        return AmqpError("", "the broker settled the message without an outcome")
    if code == performatives.REJECTED:
        error = performatives.read_error(fields_of(state, "delivery state")[1].value(0))
        return error or AmqpError("", "the broker rejected the message without a reason")
    names = {performatives.RELEASED: "released", performatives.MODIFIED: "released (modified)"}
    name = names.get(code, f"answered with {code:#x} for")
    return AmqpError("", f"the broker {name} the message")
