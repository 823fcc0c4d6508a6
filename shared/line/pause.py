"""
An operator's order to pause, as a task follows it.

A paused task takes no new batch into its hands. What the host has delivered nevertheless waits unsent, with its locks
renewed, because a failed batch costs each of its messages a delivery attempt. Once the source delivers nothing more,
the batch is given back. An event hub has no locks: there it waits, and the checkpoint stays: docs/decisions/0051.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum

from shared.clock import Clock, SystemClock
from shared.errors import BuswayError, TargetUnavailable
from shared.line.deadline import Deadline
from shared.printable import printable

_LOGGER = logging.getLogger("busway.pipeline")

ORDER_SECONDS = 5.0
"""Seconds after which an order is read again when a batch arrives."""
_WAIT_SECONDS = 2.0
# Many batches may wait, one for each partition or session.
_PAUSED_SECONDS = 1.0
_READ_SECONDS = 2.0
_RETRY_SECONDS = 30.0


class Order(StrEnum):
    """What a task is to do with what is delivered."""

    RUN = "run"
    WAIT = "wait"
    GIVE_BACK = "give back"


type ReadOrder = Callable[[], Awaitable[Order]]
"""Reads the order for a task; raises TargetUnavailable or TargetRefused."""


class Pause:
    """Holds the batches of one task in this instance while it is paused."""

    def __init__(self, task: str, read: ReadOrder, clock: Clock | None = None) -> None:
        """Ask *read* at most every few seconds, and only when there are batches."""
        self._task = task
        self._read = read
        self._clock = clock or SystemClock()
        self._order = Order.RUN
        self._due = float("-inf")
        self._reading = asyncio.Lock()
        self._is_failing = False

    async def wait(self, deadline: Deadline) -> None:
        """
        Return when the task is not paused; otherwise give the batch back once its source is closed.

        Raises: TargetUnavailable if the batch must be redelivered, LockLost.
        """
        if await self._order_now() is Order.RUN:
            return
        # A batch that arrives although the source is closed was let through by someone: giving it back would only cost
        # it a delivery attempt after the other.
        is_closed = self._order is Order.GIVE_BACK
        _LOGGER.info("%s: is paused, and a batch waits unsent", self._task)
        while await deadline.pause(_WAIT_SECONDS, is_retry=False):
            order = await self._order_now()
            if order is Order.RUN:
                _LOGGER.info("%s: is resumed", self._task)
                return
            if order is Order.GIVE_BACK and not is_closed:
                if deadline.locks is not None:
                    await deadline.locks.give_back()
                break
        raise TargetUnavailable(f"{self._task}: is paused, the batch goes back to its source unsent")

    async def _order_now(self) -> Order:
        async with self._reading:
            now = self._clock.monotonic()
            if now >= self._due:
                try:
                    self._order = await asyncio.wait_for(self._read(), _READ_SECONDS)
                except (BuswayError, TimeoutError) as error:
                    self._due = now + _RETRY_SECONDS
                    self._log(error)
                else:
                    self._due = now + (ORDER_SECONDS if self._order is Order.RUN else _PAUSED_SECONDS)
                    self._is_failing = False
            return self._order

    def _log(self, error: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            reason = printable(str(error)) or "the storage account does not answer"
            _LOGGER.warning("%s: the orders of operators cannot be read, the last one stays: %s", self._task, reason)
