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
from typing import Self, cast, override

from msgspec import Struct

from shared.amqp.values import Malformed
from shared.azure.senders import amqp_frames as frames
from shared.azure.senders.amqp_endpoint import AmqpEndpoint
from shared.azure.senders.amqp_frames import AmqpError, Performative

UNAUTHORIZED = "amqp:unauthorized-access"
_SERIAL = 2**32
_CLOSE_SECONDS = 1.0
_SMALLEST_FRAME = 512
# SASL outcomes: authentication failed, and a permanent error of the system.
_REFUSED_CODES = frozenset((1, 3))


type Answered = Callable[[Sequence[int], Exception | None], None]


class LinkClosed(ConnectionError):
    """Busway closed the link, or the message was not sent when it ended."""


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


class AmqpLink(asyncio.Protocol):
    """An open link; any number of callers may deliver at the same time."""

    def __init__(self, endpoint: AmqpEndpoint, address: str, capability: str | None) -> None:
        """Prepare a link to *address*; `open` connects it."""
        self.failure: Exception | None = None
        """The error that ended the link, None while it is usable."""
        self.lost = 0
        """The number of sent messages that had no answer when the link ended."""
        self.largest_message = 0
        """The most bytes in one message, as announced by the broker; 0 for no limit."""
        self._endpoint = endpoint
        self._address = address
        self._capability = capability
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._attached: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._rest = b""  # the beginning of a frame
        self._header = frames.SASL_HEADER
        self._is_header_due = True
        self._unsent: deque[Delivery] = deque()
        self._pending: deque[tuple[bytes, bytes]] = deque()  # frames of the message that is being sent
        self._unanswered: dict[int, Delivery] = {}
        self._next_delivery = 0
        self._next_transfer = 0
        self._next_incoming = 0
        self._window = 0
        self._credit = 0
        self._drained = 0  # credit that was given back, which the link counts like deliveries
        self._largest_frame = _SMALLEST_FRAME
        self._heard = self._loop.time()
        self._tending: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, endpoint: AmqpEndpoint, address: str, capability: str | None) -> Self:
        """
        Return a link to *address*, a queue or topic by its *capability*; a deadline is the caller's.

        Raises: AmqpError if the broker refuses it, OSError if it cannot be reached or trusted, Malformed.
        """
        context = ssl.create_default_context() if endpoint.is_encrypted else None
        self = cls(endpoint, address, capability)
        await self._loop.create_connection(lambda: self, endpoint.host, endpoint.port, ssl=context)
        try:
            await asyncio.shield(self._attached)
        except BaseException:
            self._end(ConnectionError("the link was not opened in time"))
            raise
        if self.failure is not None:
            raise self.failure  # it came with the attach
        return self

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with SASL; see `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)
        self._write(self._header)

    @override
    def data_received(self, data: bytes) -> None:
        """Handle the frames that are complete, then send what their answers and credit allow."""
        if self.failure is not None:
            return
        self._heard = self._loop.time()
        try:
            self._rest = self._handle_all(self._rest + data if self._rest else data)
            self.flush()
        except Exception as error:  # noqa: BLE001 - whatever ends the link, each caller must get an answer
            self._end(error)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """End the link, if it has not ended."""
        when = "" if self._attached.done() else " while it was opened"
        self._end(exc or ConnectionError(f"the broker closed the connection{when}"))
        self._closed.set_result(None)

    def give(self, content: bytes, answered: Answered, position: int = 0) -> Delivery:
        """
        Take one message, which the next `flush` sends as soon as the broker grants credit; the link must be usable.

        *answered* gets the *position*, with those of other messages that have the same answer, and None if the broker
        accepts them, or the error: the `failure` if the link ends before the answer, LinkClosed if it ends before the
        message is sent. What it gives to the link needs no flush.
        """
        delivery = Delivery(content, answered, position)
        self._unsent.append(delivery)
        return delivery

    def flush(self) -> None:
        """Send as much as credit and window allow."""
        if self.failure is not None:
            return
        # Once for each message: names of this function are faster than attributes.
        unsent, unanswered, pending = self._unsent, self._unanswered, self._pending
        number, credit, count = self._next_delivery, self._credit, 0
        room = self._largest_frame - frames.TRANSFER_OVERHEAD
        out: list[bytes] = []
        while count < self._window:
            if pending:
                out += pending.popleft()
                count += 1
                continue
            while unsent and unsent[0].answered is None:
                unsent.popleft()  # also without credit, so that withdrawn messages do not pile up
            if not unsent or not credit:
                break
            delivery = unsent.popleft()
            delivery.is_sent = True
            unanswered[number] = delivery
            content, delivery.content = delivery.content, b""
            if len(content) <= room:
                out += (frames.whole_transfer(number, len(content)), content)
                count += 1
            else:
                pending.extend(frames.transfer_frames(number, content, self._largest_frame))
            number = (number + 1) % _SERIAL
            credit -= 1
        self._next_delivery, self._credit = number, credit
        if out:
            self._window -= count
            self._next_transfer = (self._next_transfer + count) % _SERIAL
            self._write(b"".join(out))

    async def close(self) -> None:
        """Close the connection; messages in flight get an error."""
        self._end(LinkClosed("the link is closed"))
        await asyncio.wait([self._closed], timeout=2 * _CLOSE_SECONDS)

    def _handle_all(self, received: bytes) -> bytes:
        """Handle the frames in *received*; return the beginning of one that is not complete."""
        start = 0
        while len(received) - start >= frames.HEADER_BYTES:
            header = received[start : start + frames.HEADER_BYTES]
            if self._is_header_due:
                self._check_header(header)
                start += frames.HEADER_BYTES
                continue
            is_sasl = self._header == frames.SASL_HEADER
            extended, size = frames.frame_size(header, is_sasl=is_sasl)
            body = start + frames.HEADER_BYTES + extended
            if len(received) < body + size:
                break
            start = body + size
            accepted = frames.accepted_range(received[body:start])
            if accepted is not None:
                self._answer(*accepted, None)
            elif (found := frames.read_performative(received[body:start])) is not None:
                (self._authenticate if is_sasl else self._handle)(found)
        return received[start:]

    def _check_header(self, answer: bytes) -> None:
        """Read the broker's answer to the header of SASL or AMQP; open the link after the second."""
        if answer != self._header:
            version = f"AMQP {answer[5]}.{answer[6]}.{answer[7]}" if answer.startswith(b"AMQP") else "another protocol"
            text = f"it answers with {version}, expected AMQP 1.0 with SASL at this port"
            raise AmqpError("amqp:not-implemented", text)
        self._is_header_due = False
        if self._header == frames.AMQP_HEADER:
            name = f"busway-{uuid.uuid4()}"
            opening = frames.open_frame(name, self._endpoint.host_name) + frames.begin_frame()
            self._write(opening + frames.attach_frame(name, self._address, self._capability))

    def _authenticate(self, frame: Performative) -> None:
        mechanism = self._endpoint.mechanism
        if frame.code == frames.SASL_MECHANISMS:
            offered = frames.mechanisms_of(frame)
            if mechanism not in offered:
                raise AmqpError(UNAUTHORIZED, f"it offers {', '.join(offered)}, expected {mechanism}")
            self._write(frames.sasl_init(mechanism, self._endpoint.initial_response(), self._endpoint.host))
        elif frame.code == frames.SASL_OUTCOME:
            if code := frame.number(0, 0):
                condition = UNAUTHORIZED if code in _REFUSED_CODES else None
                raise AmqpError(condition, f"SASL {mechanism}: code {code}")
            self._header, self._is_header_due = frames.AMQP_HEADER, True
            self._write(self._header)
        else:
            raise Malformed(f"SASL: got frame {frame.code:#x}, expected the mechanisms or the outcome")

    def _handle(self, frame: Performative) -> None:
        if frame.code == frames.OPEN:
            self._largest_frame = max(_SMALLEST_FRAME, min(frame.number(2, frames.LARGEST_FRAME), frames.LARGEST_FRAME))
            idle_seconds = frame.number(4, 0) / 1000
            self._tend_after(min(idle_seconds / 2 or frames.IDLE_SECONDS, frames.IDLE_SECONDS))
        elif frame.code == frames.BEGIN:
            self._next_incoming, self._window = frame.number(1, 0), frame.number(2, 0)
        elif frame.code == frames.ATTACH:
            # Without a target the link is refused, and a detach with the reason follows.
            if frame.value(6).payload is not None and not self._attached.done():
                self.largest_message = frame.number(10, 0)
                self._attached.set_result(None)
        elif frame.code == frames.FLOW:
            self._flow(frame)
        elif frame.code == frames.DISPOSITION:
            self._disposed(frame)
        elif frame.code in {frames.DETACH, frames.END, frames.CLOSE}:
            error = frames.error_of(frame.value(2 if frame.code == frames.DETACH else 0))
            what = {frames.DETACH: "link", frames.END: "session", frames.CLOSE: "connection"}[frame.code]
            raise error or AmqpError(None, f"the broker closed the {what}")

    def _flow(self, frame: Performative) -> None:
        self._window = _left(frame.number(1, 0), self._next_transfer - frame.number(0, 0))
        if frame.value(4).payload is not None:
            self._credit = _left(frame.number(6, 0), self._next_delivery + self._drained - frame.number(5, 0))
        is_drain, is_echo = frame.flag(8), frame.flag(9)
        if is_drain:
            self.flush()
            self._drained += self._credit
            self._credit = 0
        if is_drain or is_echo:
            delivery_count = (self._next_delivery + self._drained) % _SERIAL
            link = None if frame.value(4).payload is None else (delivery_count, self._credit, is_drain)
            self._write(frames.flow_frame(self._next_incoming, self._next_transfer, link))

    def _disposed(self, frame: Performative) -> None:
        state = frames.outcome_of(frame.value(4))
        first = frame.number(1, 0)
        last = frame.number(2, first)
        if not frame.flag(3) and (state is None or state.code == frames.RECEIVED):
            return  # the outcome follows
        self._answer(first, last, _error(state))
        if not frame.flag(3):
            self._write(frames.settled_frame(first, last))

    def _answer(self, first: int, last: int, failure: Exception | None) -> None:
        """Answer the deliveries from *first* to *last*, which is a range of any size."""
        count = (last - first) % _SERIAL + 1
        if count > _SERIAL // 2:
            raise Malformed(f"disposition: got deliveries {first} to {last}, expected the first before the last")
        if count < len(self._unanswered):
            numbers = [(first + each) % _SERIAL for each in range(count)]
        else:
            numbers = [each for each in self._unanswered if (each - first) % _SERIAL < count]
        unanswered, last_answered = self._unanswered, None
        calls: list[tuple[Answered, list[int]]] = []
        for number in numbers:
            delivery = unanswered.pop(number, None)
            if delivery is None or (answered := delivery.answered) is None:
                continue
            delivery.answered = None
            if answered is not last_answered:
                last_answered, positions = answered, list[int]()
                calls.append((answered, positions))
            positions.append(delivery.position)
        for answered, positions in calls:
            answered(positions, failure)

    def _tend_after(self, seconds: float) -> None:
        """Tend the connection every *seconds*, half of the time after which the broker gives up."""
        self._tending = self._loop.call_later(seconds, self._tend, seconds)

    def _tend(self, seconds: float) -> None:
        """Send an empty frame; give up if the broker is silent itself."""
        if self._loop.time() - self._heard > 2 * frames.IDLE_SECONDS:
            self._end(LinkClosed(f"the broker sent nothing for {2 * frames.IDLE_SECONDS} s"))
            return
        self._write(frames.EMPTY_FRAME)
        self._tend_after(seconds)

    def _write(self, data: bytes) -> None:
        if self.failure is None and self._transport is not None:
            self._transport.write(data)

    def _end(self, error: Exception) -> None:
        """End the link with *error*, unless it has ended."""
        if self.failure is not None:
            return
        self._write(frames.close_frame())
        self.failure = error
        if self._transport is not None:
            self._transport.close()
            # A peer that no longer reads would keep the socket open.
            self._loop.call_later(_CLOSE_SECONDS, self._transport.abort)
        if self._tending is not None:
            self._tending.cancel()
        if not self._attached.done():
            self._attached.set_exception(error)
            self._attached.exception()  # it may have no reader
        sent, unsent = list(self._unanswered.values()), list(self._unsent)
        self._unanswered.clear()
        self._unsent.clear()
        self.lost = sum(each.answered is not None for each in sent)
        for delivery in sent:
            delivery.answer(error)
        # The broker's text may quote a message that was in flight.
        unsent_error = LinkClosed("the link is closed" if sent else f"the link is closed: {error}")
        for delivery in unsent:
            delivery.answer(unsent_error)


def _left(granted: int, uncounted: int) -> int:
    """
    Return what is left of a window or credit; *uncounted* is what was sent and the broker had not counted yet.

    That may be more than a broker grants that wants less than before.
    """
    uncounted %= _SERIAL
    return max(granted - uncounted, 0) if uncounted < _SERIAL // 2 else granted


def _error(state: Performative | None) -> AmqpError | None:
    """Return the error of an outcome, None for accepted."""
    if state is None or state.code == frames.ACCEPTED:
        # Settled without a state: the broker forgets it, which AMQP 1.0 has no other meaning for.
        return None if state is not None else AmqpError(None, "the broker settled the message without an outcome")
    if state.code == frames.REJECTED:
        return frames.error_of(state.value(0)) or AmqpError(None, "the broker rejected the message without a reason")
    names = {frames.RELEASED: "released", frames.MODIFIED: "released (modified)"}
    name = names.get(state.code, f"answered with {state.code:#x} for")
    return AmqpError(None, f"the broker {name} the message")
