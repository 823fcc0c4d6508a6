"""Wraps a sender of `azure.servicebus.aio`, so that no send waits longer than its timeout."""

import asyncio
import math
import time
from collections.abc import Sequence

from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients.senders.delivery import SdkSender, deliver, failed_delivery, is_lost, joined, seconds_left
from busway_clients.senders.error_kinds import is_unavailable
from busway_clients.senders.messages import OutgoingMessage
from busway_clients.senders.outcome import Delivery
from busway_clients.steps import run_async

# The SDK may exceed its timeout by this much.
_GRACE_SECONDS = 1.5


class SenderLink:
    """An SDK sender that makes one send at a time."""

    def __init__(self, name: str, sender: SdkSender) -> None:
        """Send to the namespace *name*."""
        self.sender = sender
        self.is_open = False
        self._name = name
        self._lock = asyncio.Lock()

    async def send(
        self, messages: Sequence[OutgoingMessage], until: float, failed: Exception | None = None
    ) -> Delivery:
        """Send as a `Link` does."""
        if not await acquire_within(self._lock, None if until == math.inf else max(0.0, until - time.monotonic())):
            text = f"{self._name}: earlier sends did not end in time; this one was not started"
            return failed_delivery(messages, OperationTimeoutError(message=text))
        try:
            was_open, self.is_open = self.is_open, self.is_open and failed is None
            delivery = await self._deliver(messages, until) if failed is None else failed_delivery(messages, failed)
            if not was_open or not is_lost(delivery, until):
                return delivery
            return joined(delivery, await self._deliver(messages[len(delivery.accepted) :], until))
        finally:
            self._lock.release()

    async def _deliver(self, messages: Sequence[OutgoingMessage], until: float) -> Delivery:
        # Over an open link the SDK obeys its timeout. Opening a link has no limit without a timeout, as for a batch,
        # and before version 7.15 not even with one.
        was_open, self.is_open = self.is_open, False
        if was_open and len(messages) == 1:
            # The fast path of nearly all sends: running steps would cost more than the send.
            message_id, message = messages[0]
            try:
                await self.sender.send_messages(message, timeout=seconds_left(until))
                delivery = Delivery((message_id,))
            except Exception as error:  # noqa: BLE001 - the outcome reports every error
                delivery = failed_delivery(messages, error)
        else:
            bound = None if was_open or until == math.inf else until + _GRACE_SECONDS
            delivery = await run_async(deliver(self.sender, messages, until), until=bound)
        # The service may end the link after its answer: the next send finds that out, and opens another.
        self.is_open = delivery.error is None or not is_unavailable(delivery.error)
        if isinstance(delivery.error, TimeoutError):
            late = OperationTimeoutError(message=f"{self._name}: the SDK did not return in time")
            late.__cause__ = delivery.error
            return delivery._replace(error=late)
        return delivery


async def acquire_within(turn: asyncio.Lock, timeout: float | None) -> bool:  # noqa: ASYNC109 - the result reports it
    """Acquire a lock and return True, or False after *timeout* seconds."""
    if timeout is None or not turn.locked():
        return await turn.acquire()
    try:
        async with asyncio.timeout(timeout):
            return await turn.acquire()
    except TimeoutError:
        return False
