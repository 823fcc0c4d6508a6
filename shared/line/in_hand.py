"""
The messages that batches of a task have in hand in this process.

A batch that loses its lock goes on, because its target may have its messages already. If the source then delivers them
again to this process, to another lane, both deliveries would be sent. So the second waits until the first has ended,
and takes the results that it has left among the accepted sends.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from shared.errors import TargetUnavailable
from shared.line.accepted_sends import Key
from shared.line.deadline import Deadline
from shared.line.item import Item

_LOGGER = logging.getLogger("busway.pipeline")
_STEP_SECONDS = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    keys: frozenset[Key]


class InHand:
    """The batches of one task that are not finished, in the order in which they began."""

    def __init__(self, task: str) -> None:
        """Start without any."""
        self._task = task
        self._batches: list[_Batch] = []

    @asynccontextmanager
    async def hold(self, items: Iterable[Item], deadline: Deadline) -> AsyncIterator[None]:
        """
        Hold *items* for the context, which begins when no earlier batch holds one of them.

        Raises: TargetUnavailable at the *deadline*, LockLost.
        """
        batch = _Batch(frozenset(item.key for item in items if item.key is not None))
        earlier = [each for each in self._batches if not each.keys.isdisjoint(batch.keys)]
        self._batches.append(batch)
        try:
            if earlier:
                await self._wait(earlier, deadline)
            yield
        finally:
            self._batches.remove(batch)

    async def _wait(self, earlier: Sequence[_Batch], deadline: Deadline) -> None:
        _LOGGER.warning("%s: the batch waits for an earlier delivery of its messages, which lost its lock", self._task)
        while any(each in self._batches for each in earlier):
            if not await deadline.pause(_STEP_SECONDS, is_retry=False):
                raise TargetUnavailable(f"{self._task}: an earlier delivery of the messages has not ended in time")
