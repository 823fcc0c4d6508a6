"""
A tap that peeks at a queue or subscription, without taking anything from it.

The last sequence number that was seen is kept as a mark beside the journal, and written after the records: a tap that
stops in between sees the same messages again. An entity that was deleted and created again counts from 1 again. The
tap detects that by messages whose numbers it has seen before, but with a later enqueued time. A peek does not show
what is consumed between two peeks, and it cannot follow a partitioned entity, whose numbers have gaps.
"""

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self, runtime_checkable

from shared.journal.tap import Tap
from shared.message.arrival import Origin
from shared.message.peeked import PeekedMessage

_LOGGER = logging.getLogger("busway.journal")

MESSAGES_AT_ONCE = 250
# How many of an entity's first messages show whether it is still the same entity; several, as some may be scheduled.
_FIRST_MESSAGES = 10


class Peeker(Protocol):
    """An open connection to one entity."""

    async def peek(self, first: int, count: int) -> list[PeekedMessage]:
        """Return up to *count* messages from sequence number *first* on; raises TargetUnavailable."""
        ...


@runtime_checkable
class Marks(Protocol):
    """Small documents by name, beside the journal."""

    async def read_mark(self, name: str) -> bytes | None:
        """Return what was written last, None if nothing was."""
        ...

    async def write_mark(self, name: str, content: bytes) -> None:
        """Replace the mark."""
        ...


class _Mark(NamedTuple):
    """How far a tap has come: the last sequence number, and the latest enqueued time (ms) of all messages seen."""

    sequence_number: int = 0
    enqueued_time: int = 0

    @classmethod
    def read(cls, content: bytes | None) -> Self:
        """Return the mark that was written; without an enqueued time it cannot be trusted, and the tap starts over."""
        fields = {} if content is None else json.loads(content)
        return cls(fields["sequence_number"], fields["enqueued_time"]) if "enqueued_time" in fields else cls()

    def after(self, peeked: Sequence[PeekedMessage]) -> Self:
        """Return the mark after these messages; scheduled ones are not enqueued yet."""
        numbers = [message.sequence_number for message in peeked if message.sequence_number is not None]
        times = [
            message.enqueued_time
            for message in peeked
            if not message.is_scheduled and message.enqueued_time is not None
        ]
        return type(self)(max(numbers, default=self.sequence_number), max([self.enqueued_time, *times]))

    def contradicts(self, message: PeekedMessage) -> bool:
        """Return whether a message cannot come from the entity that the mark was made for."""
        number, enqueued = message.sequence_number, message.enqueued_time
        return number is not None and number <= self.sequence_number and (enqueued or 0) > self.enqueued_time


@dataclass
class PeekingTap:
    """A tap that a timer runs: it passes to *tap* every message that has come to *origin* since the last run."""

    tap: Tap
    origin: Origin
    open_peeker: Callable[[], AbstractAsyncContextManager[Peeker]]
    marks: Marks
    _mark: _Mark | None = field(default=None, init=False)

    async def look(self) -> int:
        """Peek until nothing new is there; return the number of messages. Raises TargetUnavailable, TargetRefused."""
        if self._mark is None:
            self._mark = _Mark.read(await self.marks.read_mark(self.tap.name))
        seen = 0
        async with self.open_peeker() as peeker:
            if await self._is_recreated(peeker, self._mark):
                text = "the entity was deleted and created again; the tap starts from its first message"
                _LOGGER.warning("%s: %s/%s: %s", self.tap.name, self.origin.site, self.origin.entity, text)
                self._mark = _Mark()
            while messages := await peeker.peek(self._mark.sequence_number + 1, MESSAGES_AT_ONCE):
                present = [message.content for message in messages if not message.is_scheduled]
                await self.tap.see(present)
                mark = self._mark.after(messages)
                if mark.sequence_number <= self._mark.sequence_number:
                    break
                self._mark = mark
                await self.marks.write_mark(self.tap.name, json.dumps(mark._asdict()).encode())
                seen += len(present)
        return seen

    async def _is_recreated(self, peeker: Peeker, mark: _Mark) -> bool:
        if mark.sequence_number == 0:
            return False
        first = await peeker.peek(1, _FIRST_MESSAGES)
        return any(mark.contradicts(message) for message in first if not message.is_scheduled)
