"""Waiting for the service to confirm the settlement of deliveries."""

import asyncio

from local.host.frames import Disposition


class Settlement:
    """Deliveries whose settlement the service has yet to confirm; `failures` holds delivery id → condition."""

    def __init__(self, waiting: set[int], outcome: int) -> None:
        """Wait for an answer for each of the delivery ids."""
        self.waiting = waiting
        self.failures: dict[int, str] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outcome = outcome

    def answered(self, delivery_id: int, disposition: Disposition) -> None:
        """Note the answer; one that confirms another outcome than the one asked for is a failure."""
        self.waiting.discard(delivery_id)
        if disposition.outcome != self._outcome or disposition.condition is not None:
            self.failures[delivery_id] = disposition.condition or f"outcome 0x{disposition.outcome or 0:02x}"
        if not self.waiting and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """Give up on all that is still waited for."""
        if not self.done.done():
            self.done.set_exception(error)
