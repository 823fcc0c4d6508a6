"""A sender of `azure.servicebus.aio` for each namespace, so that no send waits longer than its timeout."""

import asyncio
import math
import time
from collections.abc import Sequence

from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients.senders.delivery import SdkSender, deliver, is_lost, joined, left, undelivered
from busway_clients.senders.messages import Identified
from busway_clients.senders.outcome import Delivery
from busway_clients.steps import run_async

# What the SDK takes beyond the timeout that it is given, at most.
_GRACE_SECONDS = 1.5


class SenderLink:
    """A sender of the SDK; sends of several tasks follow each other."""

    def __init__(self, name: str, sender: SdkSender) -> None:
        """Name the namespace."""
        self.sender = sender
        self.is_open = False
        self._name = name
        self._turn = asyncio.Lock()

    async def send(self, messages: Sequence[Identified], until: float, failed: Exception | None = None) -> Delivery:
        """Send as a `Link` does."""
        if not await acquired(self._turn, None if until == math.inf else max(0.0, until - time.monotonic())):
            text = f"{self._name}: earlier sends have not come back in time; this one was not begun"
            return undelivered(messages, OperationTimeoutError(message=text))
        try:
            was_open, self.is_open = self.is_open, self.is_open and failed is None
            delivery = await self._deliver(messages, until) if failed is None else undelivered(messages, failed)
            if not was_open or not is_lost(delivery, until):
                return delivery
            return joined(delivery, await self._deliver(messages[len(delivery.accepted) :], until))
        finally:
            self._turn.release()

    async def _deliver(self, messages: Sequence[Identified], until: float) -> Delivery:
        # The SDK ends in time over an open link. It opens one without an end where it was given no timeout, as for a
        # batch, and before 7.15 with one too.
        was_open, self.is_open = self.is_open, False
        if was_open and len(messages) == 1:
            # Nearly all sends are this one, and a flow would cost more than the rest.
            message_id, message = messages[0]
            try:
                await self.sender.send_messages(message, timeout=left(until))
                delivery = Delivery((message_id,))
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to the outcome
                delivery = undelivered(messages, error)
        else:
            bound = None if was_open or until == math.inf else until + _GRACE_SECONDS
            delivery = await run_async(deliver(self.sender, messages, until), until=bound)
        self.is_open = delivery.error is None
        if isinstance(delivery.error, TimeoutError):
            late = OperationTimeoutError(message=f"{self._name}: the SDK has not come back in time")
            late.__cause__ = delivery.error
            return delivery._replace(error=late)
        return delivery


async def acquired(turn: asyncio.Lock, timeout: float | None) -> bool:  # noqa: ASYNC109 - the result reports it
    """Acquire a lock, and return whether that was in time. Units: timeout in seconds."""
    if timeout is None or not turn.locked():
        return await turn.acquire()
    try:
        async with asyncio.timeout(timeout):
            return await turn.acquire()
    except TimeoutError:
        return False
