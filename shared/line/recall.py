"""
The recall of results that other instances have on record, before a message is sent to several targets or in parts.

A new instance, and one that takes over from another, sends such a message only to the targets that lack it. It asks the
journal when another instance may have had the message, and never for a message that is new:

1. It was enqueued before this instance had its first message.
2. Its source counts an earlier delivery. Service Bus counts none when the connection of a session ends.
3. It does not follow the last one of its partition that this instance has had, or has waited although that one is long
   ago: others may have had the partition meanwhile.
4. It is the first of a batch of a session and has waited for longer than it takes to record what one target has.
"""

import asyncio
import logging
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta

from shared.line.accepted_sends import AcceptedSends
from shared.line.batch import Batch
from shared.line.item import Item
from shared.line.task import Task
from shared.printable import printable
from shared.protocols import Journal

_LOGGER = logging.getLogger("busway.pipeline")

_TIMEOUT_SECONDS = 10.0
_CLOCKS_DIFFER = timedelta(minutes=1)
_PATIENCE = timedelta(seconds=1)
_BETWEEN_SESSIONS = timedelta(seconds=10)
_AFTER_PROBLEM = timedelta(minutes=1)


class Recall:
    """Reads what the journal of a task has of messages that another instance may have sent, into accepted sends."""

    def __init__(self, task: Task, journal: Journal, accepted: AcceptedSends) -> None:
        """Add to *accepted* what *journal* has."""
        self._task = task
        self._journal = journal
        self._accepted = accepted
        self._began: datetime | None = None
        self._from: datetime | None = None
        self._last: dict[str, tuple[int, datetime]] = {}
        self._turn = asyncio.Lock()
        self._readings = 0
        self._read_at: datetime | None = None
        self._closed_until: datetime | None = None
        self._problem: str | None = None

    def of(self, batch: Batch) -> Awaitable[None] | None:
        """Return what to await before the messages of *batch* are looked up; None if nothing can be on record."""
        self._began = self._began or batch.now
        first = next((parts[0] for parts in batch.parts.values() if parts[0].key is not None), None)
        asked = [
            parts[0]
            for parts in batch.parts.values()
            if (self._task.router.fans_out or len(parts) > 1)
            and parts[0].key is not None
            and self._may_be_recorded(parts[0], batch, is_first=parts[0] is first)
        ]
        self._follow(batch)
        if not asked or (self._closed_until is not None and batch.now < self._closed_until):
            return None
        times = [time for item in asked if (time := item.arrival.enqueued_time) is not None]
        since = (_time(min(times)) if times else batch.now) - _CLOCKS_DIFFER
        return self._read(since.replace(minute=0, second=0, microsecond=0), batch.now)

    def _may_be_recorded(self, item: Item, batch: Batch, *, is_first: bool) -> bool:
        arrival, arrived = item.arrival, item.original.arrived
        enqueued, partition = _time(arrival.enqueued_time or 0), arrival.origin.partition
        if enqueued < (self._from or (self._began or batch.now) + _CLOCKS_DIFFER):
            return True
        has_waited = batch.now - enqueued > _PATIENCE
        if partition is not None:
            last, at = self._last.get(partition, (None, batch.now))
            follows = last is not None and last + 1 == arrival.sequence_number
            return is_first and (not follows or (has_waited and batch.now - at > _BETWEEN_SESSIONS))
        if arrived is not None and (arrived.attempt or 1) > 1:
            return True
        is_due = self._read_at is None or batch.now - self._read_at > _BETWEEN_SESSIONS
        return is_first and is_due and has_waited and arrived is not None and arrived.order_key is not None

    def _follow(self, batch: Batch) -> None:
        """Note the last message of a partition."""
        partition = batch.origin.partition
        numbers = [number for part in batch.parts if (number := part.arrival.sequence_number) is not None]
        if partition is not None and numbers:
            self._last[partition] = numbers[-1], batch.now

    async def _read(self, since: datetime, now: datetime) -> None:
        readings = self._readings
        async with self._turn:
            if self._readings > readings:
                return  # one that has begun since had all that this one would have
            self._readings += 1
            self._read_at = now
            results, problem = await self._journal.recorded(since, now, _TIMEOUT_SECONDS)
            self._accepted.recall(results)
            is_read = problem is None or bool(results)
            if is_read:
                self._from = since if self._from is None else min(since, self._from)
            self._closed_until = None if is_read else now + _AFTER_PROBLEM
            self._note(problem)

    def _note(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            _LOGGER.warning(
                "%s: targets may get a second copy of what another instance has sent: the journal was not read: %s",
                self._task.name,
                printable(problem),
            )
        self._problem = problem


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
