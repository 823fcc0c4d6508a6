"""Waiting for the service to confirm settlements."""

import asyncio
from typing import Protocol

from shared.errors import BuswayError


class EndingLink(Protocol):
    """A link that the service may end."""

    @property
    def closed_with(self) -> BuswayError | None:
        """Return the error with which the service ended the link, None if it has not ended it."""
        ...


class Settlement:
    """Deliveries of a link whose settlement awaits confirmation; `failures` has delivery id → condition."""

    def __init__(self, link: EndingLink, waiting: set[int], outcome: int) -> None:
        """Wait for an answer for each of the delivery ids."""
        self._link = link
        self.waiting = waiting
        self.failures: dict[int, str] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outcome = outcome

    def answered(self, delivery_id: int, outcome: int, condition: str) -> None:
        """Record the answer; an answer with another outcome than the requested one, or a condition, is a failure."""
        self.waiting.discard(delivery_id)
        if outcome != self._outcome or condition:
            self.failures[delivery_id] = condition or f"outcome 0x{outcome:02x}"
        if not self.waiting and not self.done.done():
            self.done.set_result(None)

    def look(self) -> None:
        """Stop waiting for answers on a link that the service has ended, such as when a session lock is lost."""
        error = self._link.closed_with
        if error is not None and not self.done.done():
            self.failures |= dict.fromkeys(self.waiting, getattr(error, "condition", str(error)))
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """Stop waiting for all answers."""
        if not self.done.done():
            self.done.set_exception(error)
