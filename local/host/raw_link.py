"""
One receiving link below the SDK's decoder: received messages, credit, waiting.

`raw_connection` describes how it uses the SDK.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from local.host import frames
from shared.amqp.values import Malformed
from shared.errors import TargetRefused, TargetUnavailable

_REFUSALS = ("amqp:not-found", "amqp:unauthorized-access", "amqp:not-allowed", "com.microsoft:entity-disabled")


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
    if name in _REFUSALS or type(error).__name__ in ("TokenAuthFailure", "AuthenticationException"):
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

    async def flow(self, raw: "RawLink", credit: int, *, drain: bool = False) -> None:
        """Set the credit of a link to *credit* messages."""
        ...

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Release deliveries without counting them as delivered."""
        ...


class RawLink:
    """A receiving link; made by `RawConnection.attach`."""

    def __init__(self, connection: Carrier, prefetch: int) -> None:
        """Start without credit and messages."""
        self.link: Any = None
        self.session_id: str | None = None
        self.is_attached = False
        self.credit = 0
        self._connection = connection
        self._prefetch = prefetch
        self._received: deque[Delivery] = deque()
        self._parts: list[bytes] = []
        self._first: frames.Transfer | None = None
        self._wanted = 0
        self._waiter: asyncio.Future[None] | None = None
        self._is_interrupted = False
        self._drained = asyncio.Event()

    async def receive(self, count: int, wait: float, gather: float = 0.02) -> list[Delivery]:
        """
        Return up to *count* messages: none when *wait* seconds pass without one, or after `interrupt`.

        After the first message it waits *gather* seconds for more, as Microsoft.Azure.Amqp does.
        """
        if self._prefetch or len(self._received) < count:
            await self._grant(count)
        if len(self._received) < count:
            if not self._received:
                await self._arrival(1, wait)
            if gather and self._received and len(self._received) < count and not self._is_interrupted:
                await self._arrival(count, gather)
        self._connection.raise_if_broken()
        if not self._received:
            self.raise_if_closed()
        return [self._received.popleft() for _ in range(min(count, len(self._received)))]

    def interrupt(self) -> None:
        """Make the current and every later `receive` return at once with the messages received so far."""
        self._is_interrupted = True
        self.wake()

    async def drain(self, seconds: float = 1.0) -> None:
        """Withdraw the credit and release messages that have arrived but were not returned."""
        if self.credit > 0:
            self._drained.clear()
            await self._connection.flow(self, 0, drain=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), seconds)
        await self._connection.release(self._received)
        self._received.clear()

    @property
    def closed_with(self) -> TargetRefused | LinkClosed | None:
        """Return the error with which the service ended the link, None if it has not ended it."""
        state = self.link.state.name
        if state in ("DETACHED", "ERROR", "DETACH_RCVD") and (self.is_attached or self.link._error is not None):  # noqa: SLF001
            return refused_or_closed(self._connection.where, self.link._error)  # noqa: SLF001
        return None

    def raise_if_closed(self) -> None:
        """Raise the error with which the service ended the link, if it did."""
        error = self.closed_with
        if error is not None:
            raise error from self.link._error  # noqa: SLF001

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
        link.delivery_count += 1
        link.current_link_credit -= 1
        first = self._first
        if first is None or first.delivery_id is None:
            raise Malformed("transfer: the first of a delivery has no delivery-id")
        self._received.append(Delivery(first.delivery_id, first.tag or b"", payload))

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
        for key, value in (getattr(frame.source, "filters", None) or {}).items():
            if key == b"com.microsoft:session-filter" and value is not None:
                self.session_id = value.decode() if isinstance(value, bytes) else str(value)

    async def flowed(self, frame: Sequence[Any]) -> None:
        """Record a flow of the service, which ends a drain; called by the SDK."""
        if not frame[6]:
            self._drained.set()

    async def _grant(self, count: int) -> None:
        if self.closed_with is not None:
            return  # a flow on an ended link would end the session and all its links
        missing = max(count, self._prefetch) - len(self._received)
        if self.credit < missing and (self.credit < count - len(self._received) or self.credit <= self._prefetch // 2):
            await self._connection.flow(self, missing)

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
            self._waiter = None
