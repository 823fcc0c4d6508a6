"""
One receiving link: received messages with their bytes, credit, waiting.

Credit follows Microsoft.Azure.Amqp 2.7 as Azure.Messaging.* drives it (measured):

1. Without prefetch each call of `receive` grants its own credit, and what it does not use stays open. A message that
   arrives while no call waits is released at once.
2. With prefetch the credit is a window over the deliveries that are not settled yet, on a hub over the events that
   were not taken yet. It is granted again in steps of two thirds of the window, at most 100.
3. A link to a session is drained after each call that returned fewer messages than asked for.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, override

from shared.access.identity import lacks_a_right
from shared.amqp import performatives
from shared.amqp.codec import pairs_of
from shared.amqp.dispositions import Disposition
from shared.amqp.fields import fields_of
from shared.amqp.links import Receiver
from shared.amqp.peer_error import shown_condition
from shared.amqp.performatives import RELEASED_STATE, Attach
from shared.amqp.serial import numbers_between
from shared.amqp.session import Session
from shared.amqp.values import Described, Payload, Value
from shared.ends.azure_amqp.settlement import Settlement
from shared.ends.conditions import cause_in
from shared.errors import TargetRefused, TargetUnavailable

_REFUSALS = (
    "amqp:not-found",
    "amqp:unauthorized-access",
    "amqp:not-allowed",
    "com.microsoft:auth-failed",
    "com.microsoft:entity-disabled",
)
_GATHER_SECONDS = 0.02
_LARGEST_STEP = 100
_DRAIN_SECONDS = 60.0
_CLOSING_SECONDS = 1.0
_FILTER = 7
_YEAR_1 = datetime(1, 1, 1)  # noqa: DTZ001 - the ticks of .NET have no zone


class Delivery(NamedTuple):
    """A message as it arrived: its delivery id, the lock token as the service sent it, and its bytes."""

    delivery_id: int
    tag: bytes
    payload: bytes


class LinkClosed(TargetUnavailable):
    """The service has ended the link or the connection; *condition* is the AMQP error condition."""

    def __init__(self, description: str, condition: str) -> None:
        """Keep the condition for callers that branch on it."""
        super().__init__(description)
        self.condition = condition


def refused_or_closed(where: str, error: BaseException | None) -> TargetRefused | LinkClosed:
    """Return the error of this project for an error of the SDK."""
    condition = getattr(error, "condition", None)
    name = getattr(condition, "value", condition)
    name = name.decode() if isinstance(name, bytes) else str(name or type(error).__name__)
    shown = shown_condition(name) if condition else name
    if (
        name in _REFUSALS
        or lacks_a_right(error)
        or type(error).__name__ in ("TokenAuthFailure", "AuthenticationException", "AuthenticationError")
    ):
        cause = cause_in(getattr(error, "description", None) or str(error))
        return TargetRefused(f"{where}: the service refused with {shown}" + (f": {cause}" if cause else ""))
    return LinkClosed(f"{where}: closed with {shown}", name)


class Carrier(Protocol):
    """The connection as its links see it."""

    where: str

    @property
    def is_broken(self) -> bool:
        """Return whether the connection has ended."""
        ...

    def raise_if_broken(self) -> None:
        """Raise the error that ended the connection, if it has ended."""
        ...


class RawLink(Receiver):
    """A receiving link in an AMQP session of its own; made by `RawConnection.attach`."""

    def __init__(
        self,
        connection: Carrier,
        session: Session,
        attach: Attach,
        prefetch: int,
        *,
        drains: bool,
        is_settled: bool,
    ) -> None:
        """Start without credit and messages; *is_settled* says that the service settles what it sends."""
        super().__init__(session, attach)
        self.session_id: str | None = None
        self.locked_until: str | None = None
        self.unsettled: dict[int, Settlement] = {}
        self._stray: list[Delivery] = []
        self._connection = connection
        self._prefetch = prefetch
        self._drains = drains
        self._is_settled = is_settled
        self._received: deque[Delivery] = deque()
        self._outstanding = 0
        self._wanted = 0
        self._waiter: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        """The link was attached, drained or ended."""
        self._is_interrupted = False
        self._is_drained = False

    async def receive(self, count: int, wait: float, *, gathers: bool = True) -> list[Delivery]:
        """
        Return up to *count* messages: none when *wait* seconds pass without one, or after `interrupt`.

        Messages that have already arrived are returned at once. A call that found nothing waits for the first message,
        and 20 ms more if it may return several and *gathers* them. A call that does not gather is *count* calls for
        one message each, as a processor of .NET makes them.
        """
        try:
            if not self._received:
                self._grant(count)
                await self._arrival(1, wait)
                if (
                    gathers
                    and count > 1
                    and self._received
                    and len(self._received) < count
                    and not self._is_interrupted
                ):
                    await self._arrival(count, _GATHER_SECONDS)
        finally:
            self._waiter = None
        self._connection.raise_if_broken()
        if not self._received:
            self.raise_if_closed()
        deliveries = [self._received.popleft() for _ in range(min(count, len(self._received)))]
        if self._is_settled:
            self.restore(len(deliveries))
        elif not self._prefetch:
            self.release(self._received)
            self._received.clear()
        if self._drains and len(deliveries) < count and self.closed_with is None:
            await self.drain(_DRAIN_SECONDS)
            self._open_window()
        return deliveries

    def offer(self, count: int) -> None:
        """Grant the credit of *count* calls while `receive` waits; for calls that begin meanwhile."""
        if self._waiter is not None and not self._waiter.done():
            self._grant(count)

    @property
    def is_interrupted(self) -> bool:
        """Return whether `interrupt` was called."""
        return self._is_interrupted

    def interrupt(self) -> None:
        """Make the current and every later `receive` return at once with the messages received so far."""
        self._is_interrupted = True
        self.wake()

    async def drain(self, seconds: float) -> None:
        """Let the service use up or withdraw the credit; LinkClosed if it does not confirm that in time."""
        if self.credit <= 0:
            return
        self._is_drained = False
        self.grant(self.credit, drain=True)
        end = asyncio.get_running_loop().time() + seconds
        while not self._is_drained:
            self._connection.raise_if_broken()
            self.raise_if_closed()
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                raise LinkClosed(f"{self._connection.where}: no answer to a drain", "no answer to a drain")
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._news.wait()

    async def withdraw(self) -> None:
        """Withdraw the credit before closing, and release messages that have arrived but were not returned."""
        try:
            await self.drain(_CLOSING_SECONDS)
            self.release(self._received)
        except (LinkClosed, TargetRefused):
            return  # messages of a session are free with the link, others when their locks end
        finally:
            self._received.clear()

    def start(self) -> None:
        """Open the prefetch window, with the attach, as .NET does."""
        self._open_window()

    def restore(self, count: int) -> None:
        """Free the places of *count* settled deliveries in the prefetch window."""
        self._outstanding -= count
        self._open_window()

    @property
    def closed_with(self) -> TargetRefused | LinkClosed | None:
        """Return the error with which the service ended the link, None if it has not ended it."""
        return None if self.failure is None else refused_or_closed(self._connection.where, self.failure)

    def raise_if_closed(self) -> None:
        """Raise the error with which the service ended the link, if it did."""
        error = self.closed_with
        if error is not None:
            raise error from self.failure

    async def attached(self) -> None:
        """Wait until the service has accepted the link; raises LinkClosed and TargetRefused."""
        while not self.is_attached:
            self._connection.raise_if_broken()
            self.raise_if_closed()
            self._news.clear()
            await self._news.wait()

    def release(self, deliveries: Iterable[Delivery]) -> None:
        """Release deliveries without counting them as delivered."""
        self.settle([delivery.delivery_id for delivery in deliveries], RELEASED_STATE, settled=True)

    @override
    def on_delivery(self, delivery_id: int, tag: bytes, message: bytes, *, settled: bool) -> None:
        delivery = Delivery(delivery_id, tag, message)
        if self._waiter is None and not self._prefetch and not self._is_settled:
            self._stray.append(delivery)
        else:
            self._outstanding += 1
            self._received.append(delivery)

    @override
    def pump(self) -> None:
        """Wake `receive` if enough has arrived; release what nobody waited for."""
        if self._waiter is not None and (len(self._received) >= self._wanted or self.failure is not None):
            self.wake()
        if self._stray:
            stray, self._stray = self._stray, []
            self.release(stray)

    def wake(self) -> None:
        """Wake the callers that wait for this link."""
        self._news.set()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @override
    def on_attach(self, peer: Attach) -> None:
        super().on_attach(peer)
        properties = {} if peer.properties is None else dict(_texts(peer.properties))
        ticks = properties.get("com.microsoft:locked-until-utc")
        if isinstance(ticks, int):
            self.locked_until = (_YEAR_1 + timedelta(microseconds=ticks // 10)).isoformat() + "+00:00"
        filters = None if peer.source is None else fields_of(peer.source, "source")[1].value(_FILTER)
        session_id = None if filters is None else dict(_texts(filters)).get("com.microsoft:session-filter")
        if session_id is not None:
            self.session_id = str(session_id)
        self._news.set()

    @override
    def on_drained(self) -> None:
        self._is_drained = True
        self._news.set()

    @override
    def on_disposition(self, found: Disposition) -> None:
        if found.role or not found.settled:
            return
        numbers = numbers_between(found.first, found.last, self.unsettled)
        if numbers:
            outcome, condition = _outcome(found)
            for number in numbers:
                self.unsettled.pop(number).answered(number, outcome, condition)

    @override
    def on_end(self, failure: Exception) -> None:
        if self._connection.is_broken:
            error = refused_or_closed(self._connection.where, failure)
            for settlement in set(self.unsettled.values()):
                settlement.fail(error)
        for settlement in set(self.unsettled.values()):
            settlement.look()
        self.wake()

    def _grant(self, count: int) -> None:
        """Grant the credit of one call, or open the prefetch window for the first."""
        if self._prefetch:
            self._open_window()
        elif self.credit < count and self.closed_with is None:
            self.grant(count)

    def _open_window(self) -> None:
        """Grant credit up to the prefetch window again, if enough of it is missing."""
        if not self._prefetch or self._is_interrupted or self.closed_with is not None:
            return  # a flow on an ended link would end the session
        target = self._prefetch - self._outstanding
        step = max(1, min(_LARGEST_STEP, self._prefetch * 2 // 3))
        if target - self.credit >= step or (self.credit <= 0 < target and not self._outstanding):
            self.grant(target)

    async def _arrival(self, wanted: int, wait: float) -> None:
        loop = asyncio.get_running_loop()
        self._wanted = wanted
        self._waiter = loop.create_future()
        timer = loop.call_later(wait, self.wake)
        try:
            self.pump()
            if self._is_interrupted or self._connection.is_broken:
                return
            await self._waiter
        finally:
            timer.cancel()


def _texts(value: Value) -> Iterator[tuple[str, Payload]]:
    """Yield the pairs of a map whose keys are texts, the values without their descriptors."""
    for key, item in pairs_of(value):
        if isinstance(key.payload, str):
            yield key.payload, item.payload.value.payload if isinstance(item.payload, Described) else item.payload


def _outcome(found: Disposition) -> tuple[int, str]:
    """Return the code of an outcome, and the condition if it is a rejection with one."""
    if found.state is None:
        return 0, ""
    code, fields = fields_of(found.state, "delivery state")
    error = performatives.read_error(fields.value(0)) if code == performatives.REJECTED else None
    return code, "" if error is None else error.condition
