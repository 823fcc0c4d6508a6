"""
What the host has delivered to one invocation of a task's function, and the invocations that have not ended.

The line works through a delivery batch by batch. It knows what is done, and what the host is to send at the end.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial

from shared.errors import BuswayError, TargetUnavailable
from shared.line.batch import Batch
from shared.line.deadline import Deadline
from shared.line.item import Item
from shared.line.locks import Locks
from shared.line.outages import Outages
from shared.line.rejects import dead_letter, dead_letter_queue
from shared.line.states import OUTCOMES, WITH_FIRST, State
from shared.message.arrival import Key, Origin
from shared.protocols import Outcome

_LOGGER = logging.getLogger("busway.pipeline")
_STEP_SECONDS = 0.5

type Release = Callable[[Sequence[int]], Awaitable[None]]
"""Is given the positions of messages whose result is on record: their source may give them up."""


class Delivery:
    """The messages of one invocation, the time that it has, and what is done."""

    deadline: Deadline
    """With the locks; set once the messages are read, because they say when their locks end."""

    def __init__(
        self,
        origin: Origin,
        contents: Sequence[bytes],
        lock_tokens: Sequence[bytes | None],
        outages: Outages,
        release: Release | None = None,
    ) -> None:
        """
        Take the encoded messages and, in their order, their lock tokens where the source has locks.

        *release* is called for each message by itself; without it the host settles all once the invocation has ended.
        """
        self._origin = origin
        self._contents = contents
        self._lock_tokens = lock_tokens or [None] * len(contents)
        self._outages = outages
        self._release = release
        self._released: set[int] = set()
        self._with_host: list[Item] = []
        self.outcomes: Counter[Outcome] = Counter()
        """Of the messages that are decided."""

    async def ask[T](self, place: str, question: Callable[[float], Awaitable[T]], /) -> T:
        """Ask as `shared.line.batch.Ask`, until the deadline."""
        return await self._outages.ask(self.deadline, place, question)

    def batch(self, now: datetime, after: Batch | None = None) -> Batch:
        """Return the messages to pass the line next, which are not read yet: what *after* has left, or all."""
        first, skipped = (0, 0) if after is None else after.rest
        # What waits was edited in vain: next time twice as many as there was room for.
        last = len(self._contents) if after is None else first + 2 * len(after.contents)
        contents, tokens = self._contents[first:last], self._lock_tokens[first:last]
        return Batch(self._origin, contents, tokens, self.ask, now, first=first, skipped=skipped)

    def is_complete(self, batch: Batch) -> bool:
        """Return whether nothing is left after *batch*."""
        return batch.rest == (len(self._contents), 0)

    def decide(self, batch: Batch, error: BuswayError | None, *, is_last: bool) -> list[Item]:
        """
        End the items of *batch* that are not released, and return those that have a result.

        What the host is to send waits for the last batch or an *error*: with an error the function hands nothing over.
        """
        decided = self.unreleased(batch)
        if error is None and not is_last:
            self._with_host += [item for item in decided if _is_with_host(item)]
            decided = [item for item in decided if not _is_with_host(item)]
        else:
            decided, self._with_host = [*self._with_host, *decided], []
        for item in decided:
            if error is None and item.state is State.HANDED_OVER:
                item.accept()  # from here on only the journal and the stores of editors can fail
            elif item.state not in OUTCOMES and item.state not in WITH_FIRST:
                item.leave()
        for item in decided:
            if item.state in WITH_FIRST:
                item.end_as_first()
        self.outcomes.update([OUTCOMES[item.state] for item in decided])
        return decided

    # Messages that are settled by themselves

    @property
    def settles_each(self) -> bool:
        """Whether every message is settled by itself, because the host settles none when the invocation ends."""
        return self._release is not None

    @property
    def can_release(self) -> bool:
        """Whether a message can be settled while others wait."""
        return self._release is not None or self.deadline.locks is not None

    def unreleased(self, batch: Batch) -> list[Item]:
        """Return the items whose message is not released."""
        items = batch.items
        return [item for item in items if item.original.position not in self._released] if self._released else items

    def finished(self, batch: Batch) -> Mapping[int, Sequence[Item]]:
        """Return the items of each message that needs no redelivery and is not released, by its position."""
        return {
            position: items
            for position, items in batch.by_position().items()
            if position not in self._released
            and (position < batch.end - 1 or not batch.postponed)
            and all(item.outcome not in {None, Outcome.RETRY} for item in items)
        }

    async def dead_letter(
        self, finished: Mapping[int, Sequence[Item]], *, waits: bool = True
    ) -> Mapping[int, BuswayError]:
        """
        Move the messages of *finished* that are at fault to the dead-letter queue of their source.

        Return by position the errors of those that it keeps; it tries until the deadline if it *waits*.
        """
        kept = {}
        for position, items in finished.items():
            given_up = [item for item in items if item.state is State.DEAD_LETTERED]
            if self.deadline.locks is None or not given_up:
                continue
            try:
                if waits:
                    await self.ask(dead_letter_queue(given_up[0]), partial(_moved, given_up, self.deadline.locks))
                else:
                    await dead_letter(given_up, self.deadline.locks)
            except BuswayError as error:
                kept[position] = error
        return kept

    async def release(self, positions: Iterable[int]) -> None:
        """Let the source give up the messages at these *positions*."""
        done = [*positions]
        self._released.update(done)
        if self._release is not None and done:
            await self._release(done)
        elif self.deadline.locks is not None and done:
            await self.deadline.locks.complete([self._lock_tokens[position] for position in done])


async def _moved(given_up: Sequence[Item], locks: Locks, _: float) -> None:
    await dead_letter(given_up, locks)


def _is_with_host(item: Item) -> bool:
    """Return whether the host will be asked to send it, or the message that it repeats."""
    first = item.leader if item.state in WITH_FIRST and item.leader is not None else item
    return first.state is State.HANDED_OVER


class Deliveries:
    """
    The deliveries of one task that have not ended in this process, by their messages, in the order of their begin.

    A delivery that loses its lock goes on, because its target may have its messages already. If the source then
    delivers them again to this process, to another lane, both deliveries would be sent. So the second waits until the
    first has ended, and takes the results that it has left among the accepted sends.
    """

    def __init__(self, task: str) -> None:
        """Start without any."""
        self._task = task
        self._present: dict[object, frozenset[Key]] = {}

    @asynccontextmanager
    async def hold(self, items: Iterable[Item], deadline: Deadline) -> AsyncIterator[None]:
        """
        Hold *items* for the context, which begins when no earlier delivery holds one of them.

        Raises: TargetUnavailable at the *deadline*, LockLost.
        """
        keys = frozenset(item.key for item in items if item.key is not None)
        earlier = [other for other, its_keys in self._present.items() if not its_keys.isdisjoint(keys)]
        delivery = object()
        self._present[delivery] = keys
        try:
            if earlier:
                await self._wait(earlier, deadline)
            yield
        finally:
            del self._present[delivery]

    async def _wait(self, earlier: Sequence[object], deadline: Deadline) -> None:
        _LOGGER.warning("%s: the batch waits for an earlier delivery of its messages, which lost its lock", self._task)
        while any(other in self._present for other in earlier):
            if not await deadline.pause(_STEP_SECONDS, is_retry=False):
                raise TargetUnavailable(f"{self._task}: an earlier delivery of the messages has not ended in time")
