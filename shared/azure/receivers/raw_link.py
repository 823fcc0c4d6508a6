"""
One receiving link below the SDK's decoder: its AMQP session, received messages, credit, waiting.

Credit follows Microsoft.Azure.Amqp 2.7 as Azure.Messaging.* drives it (measured):

1. Without prefetch each call of `receive` grants its own credit, and what it does not use stays open. A message that
   arrives while no call waits is released at once.
2. With prefetch the credit is a window over the deliveries that are not settled yet, on a hub over the events that
   were not taken yet. It is granted again in steps of two thirds of the window, at most 100.
3. A link to a session is drained after each call that returned fewer messages than asked for.

`raw_connection` describes how it uses the SDK.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from shared.amqp.values import Malformed
from shared.azure.identity import lacks_a_right
from shared.azure.receivers import frames
from shared.azure.receivers.settlement import Settlement
from shared.errors import TargetRefused, TargetUnavailable

_REFUSALS = ("amqp:not-found", "amqp:unauthorized-access", "amqp:not-allowed", "com.microsoft:entity-disabled")
_GATHER_SECONDS = 0.02
_LARGEST_STEP = 100
_DRAIN_SECONDS = 60.0
_CLOSING_SECONDS = 1.0
_SERIAL = 0xFFFFFFFF
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
    if (
        name in _REFUSALS
        or lacks_a_right(error)
        or type(error).__name__ in ("TokenAuthFailure", "AuthenticationException")
    ):
        return TargetRefused(f"{where}: the service refused with {name}")
    return LinkClosed(f"{where}: closed with {name}", name)


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

    async def progress(self, seconds: float) -> None:
        """Wait until something has been read, or until the timeout."""
        ...

    async def flow(self, raw: "RawLink", credit: int, *, drain: bool = False) -> None:
        """Set the credit of a link to *credit* messages."""
        ...

    async def release(self, raw: "RawLink", deliveries: Sequence[Delivery]) -> None:
        """Release deliveries without counting them as delivered."""
        ...


class RawLink:
    """A receiving link in an AMQP session of its own; made by `RawConnection.attach`."""

    def __init__(self, connection: Carrier, session: Any, prefetch: int, *, drains: bool, is_settled: bool) -> None:
        """Start without credit and messages; *is_settled* says that the service settles what it sends."""
        self.session = session
        self.link: Any = None
        self.session_id: str | None = None
        self.locked_until: str | None = None
        self.is_attached = False
        self.credit = 0
        self.unsettled: dict[int, Settlement] = {}
        self.stray: list[Delivery] = []
        self._connection = connection
        self._prefetch = prefetch
        self._drains = drains
        self._is_settled = is_settled
        self._received: deque[Delivery] = deque()
        self._outstanding = 0
        self._parts: list[bytes] = []
        self._first: frames.Transfer | None = None
        self._wanted = 0
        self._waiter: asyncio.Future[None] | None = None
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
                await self._grant(count)
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
            await self.restore(len(deliveries))
        elif not self._prefetch:
            await self._connection.release(self, self._received)
            self._received.clear()
        if self._drains and len(deliveries) < count and self.closed_with is None:
            await self.drain(_DRAIN_SECONDS)
            await self._open_window()
        return deliveries

    async def offer(self, count: int) -> None:
        """Grant the credit of *count* calls while `receive` waits; for calls that begin meanwhile."""
        if self._waiter is not None and not self._waiter.done():
            await self._grant(count)

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
        await self._connection.flow(self, self.credit, drain=True)
        end = asyncio.get_running_loop().time() + seconds
        while not self._is_drained:
            self._connection.raise_if_broken()
            self.raise_if_closed()
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                raise LinkClosed(f"{self._connection.where}: no answer to a drain", "no answer to a drain")
            await self._connection.progress(left)

    async def withdraw(self) -> None:
        """Withdraw the credit before closing, and release messages that have arrived but were not returned."""
        try:
            await self.drain(_CLOSING_SECONDS)
            await self._connection.release(self, self._received)
        except (LinkClosed, TargetRefused):
            return  # messages of a session are free with the link, others when their locks end
        finally:
            self._received.clear()

    async def start(self) -> None:
        """Open the prefetch window, with the attach, as .NET does."""
        await self._open_window()

    async def restore(self, count: int) -> None:
        """Free the places of *count* settled deliveries in the prefetch window."""
        self._outstanding -= count
        await self._open_window()

    @property
    def closed_with(self) -> TargetRefused | LinkClosed | None:
        """Return the error with which the service ended the link, None if it has not ended it."""
        state = self.link.state.name
        error = self.link._error
        is_over = state in ("DETACHED", "ERROR", "DETACH_RCVD") and (self.is_attached or error is not None)
        if is_over or self.session.state.name in ("UNMAPPED", "DISCARDING", "END_RCVD"):
            return refused_or_closed(self._connection.where, error)
        return None

    def raise_if_closed(self) -> None:
        """Raise the error with which the service ended the link, if it did."""
        error = self.closed_with
        if error is not None:
            raise error from self.link._error

    def transferred(self, transfer: frames.Transfer) -> None:
        """Handle a transfer of this link."""
        if transfer.delivery_id is not None and not self._parts:
            self._first = transfer
        if transfer.aborted:
            self._parts = []
            return
        if transfer.more:
            self._parts.append(transfer.payload)
            return
        payload = transfer.payload
        if self._parts:
            self._parts.append(payload)
            payload = b"".join(self._parts)
            self._parts = []
        self.credit -= 1
        link = self.link
        link.delivery_count = (link.delivery_count + 1) & _SERIAL
        first = self._first
        if first is None or first.delivery_id is None:
            raise Malformed("transfer: the first of a delivery has no delivery-id")
        delivery = Delivery(first.delivery_id, first.tag or b"", payload)
        if self._waiter is None and not self._prefetch and not self._is_settled:
            self.stray.append(delivery)
        else:
            self._outstanding += 1
            self._received.append(delivery)

    def look(self) -> None:
        """Wake `receive` if enough has arrived, or if nothing more will."""
        if self._waiter is not None and (len(self._received) >= self._wanted or self.link.state.name != "ATTACHED"):
            self.wake()

    def wake(self) -> None:
        """Wake `receive`."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def attached(self, frame: Any) -> None:
        """Record the service's answer to the attach; called by the SDK."""
        self.is_attached = frame.source is not None
        ticks = (frame.properties or {}).get(b"com.microsoft:locked-until-utc")
        if isinstance(ticks, int):
            self.locked_until = (_YEAR_1 + timedelta(microseconds=ticks // 10)).isoformat() + "+00:00"
        for key, value in (getattr(frame.source, "filters", None) or {}).items():
            if key == b"com.microsoft:session-filter" and value is not None:
                self.session_id = value.decode() if isinstance(value, bytes) else str(value)

    async def flowed(self, frame: Sequence[Any]) -> None:
        """Record a flow of the service, which ends a drain with a credit of 0; called by the SDK."""
        delivery_count, credit = frame[5], frame[6]
        if delivery_count is not None and not credit:
            self.link.delivery_count = delivery_count
            self.credit = 0
            self._is_drained = True

    async def _grant(self, count: int) -> None:
        """Grant the credit of one call, or open the prefetch window for the first."""
        if self._prefetch:
            await self._open_window()
        elif self.credit < count and self.closed_with is None:
            await self._connection.flow(self, count)

    async def _open_window(self) -> None:
        """Grant credit up to the prefetch window again, if enough of it is missing."""
        if not self._prefetch or self._is_interrupted or self.closed_with is not None:
            return  # a flow on an ended link would end the session
        target = self._prefetch - self._outstanding
        step = max(1, min(_LARGEST_STEP, self._prefetch * 2 // 3))
        if target - self.credit >= step or (self.credit <= 0 < target and not self._outstanding):
            await self._connection.flow(self, target)

    async def _arrival(self, wanted: int, wait: float) -> None:
        loop = asyncio.get_running_loop()
        self._wanted = wanted
        self._waiter = loop.create_future()
        timer = loop.call_later(wait, self.wake)
        try:
            self.look()
            if self._is_interrupted or self._connection.is_broken:
                return
            await self._waiter
        finally:
            timer.cancel()
