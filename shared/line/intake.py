"""
The intake of messages that the host delivers one by one: batches of them for the line (`dispatch: single`).

1. A batch begins with the first message and ends some milliseconds later, or when it is full. Several may be on the
   line; the more there are, the longer the next one gathers.
2. A message is settled by itself: its invocation returns once its result is on record, and raises if it must stay at
   the source. Other messages of its batch that wait for a target do not delay it beyond their first attempt.
3. Messages of a session go in their order. If the host delivers one while an earlier one is on the line, it waits; if
   the earlier one stays at the source, so does it. Without sessions the same applies to a message that is delivered
   again, because its lock was lost while it was on the line: it is not sent twice.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field

from shared.errors import MessageRejected, TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.message.arrival import Origin
from shared.message.message import Message

GATHERING_SECONDS = 0.003
# With many batches on the line each costs more than the wait: fewer, larger ones carry more.
MANY_ON_LINE = 4
LONGEST_GATHERING_SECONDS = 0.015
LARGEST_BATCH = 100
# About one transfer on the Standard tier.
LARGEST_BATCH_BYTES = 200_000

_NOWHERE = Origin("", "")


@dataclass(eq=False)
class _Invocation:
    """The invocation that waits for the result of its message."""

    content: bytes
    lock_token: bytes | None
    key: Hashable
    """What goes in order: its session, or without sessions only itself; None if it cannot be read."""
    sequence_number: int
    result: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def end(self, error: BaseException | None = None) -> None:
        """Let it return, or raise *error*."""
        if self.result.done():
            return
        if error is None:
            self.result.set_result(None)
        else:
            self.result.set_exception(error)


class Intake:
    """The messages of one task that wait for their batch, and the batches on the line."""

    def __init__(
        self, line: Pipeline, *, has_sessions: bool, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Give batches to *line*; wait for messages with *sleep*."""
        self._line = line
        self._has_sessions = has_sessions
        self._sleep = sleep
        self._gathered: list[_Invocation] = []
        self._gathered_bytes = 0
        self._closing: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._on_line: Counter[Hashable] = Counter()
        """How many messages of each key are on the line."""
        self._behind: dict[Hashable, list[_Invocation]] = {}
        """What waits for an earlier message of its key."""

    async def run(self, content: bytes, lock_token: bytes | None = None, key: Hashable = None) -> None:
        """
        Replicate one message; raises if it must be delivered again.

        *key* is equal for copies of a message, which go one after the other: the line sends only the first.
        """
        session, sequence_number = _session_and_number(content)
        key = session if self._has_sessions else key or sequence_number or None
        invocation = _Invocation(content, lock_token, key, sequence_number)
        if invocation.key in self._on_line:
            self._behind.setdefault(invocation.key, []).append(invocation)
        else:
            self._gather(invocation)
        await invocation.result

    def _gather(self, invocation: _Invocation) -> None:
        self._gathered.append(invocation)
        self._gathered_bytes += len(invocation.content)
        if len(self._gathered) >= LARGEST_BATCH or self._gathered_bytes >= LARGEST_BATCH_BYTES:
            self._close()
        elif self._closing is None:
            self._closing = asyncio.create_task(self._close_later())

    async def _close_later(self) -> None:
        await self._sleep(GATHERING_SECONDS)
        if len(self._running) >= MANY_ON_LINE:
            await self._sleep(LONGEST_GATHERING_SECONDS - GATHERING_SECONDS)
        self._closing = None
        self._close()

    def _close(self) -> None:
        """Give what is gathered to the line."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        batch, self._gathered, self._gathered_bytes = self._gathered, [], 0
        batch.sort(key=lambda invocation: invocation.sequence_number)
        self._on_line.update(invocation.key for invocation in batch if invocation.key is not None)
        running = asyncio.create_task(self._run(batch))
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    async def _run(self, batch: Sequence[_Invocation]) -> None:
        open_positions = set(range(len(batch)))

        def end(position: int, error: BaseException | None = None) -> None:
            open_positions.discard(position)
            batch[position].end(error)
            self._leave_line(batch[position], error)

        async def release(positions: Sequence[int]) -> None:
            for position in positions:
                end(position)

        tokens = [invocation.lock_token for invocation in batch]
        error: BaseException | None
        try:
            error = await self._line.run_each([invocation.content for invocation in batch], tokens, release)
        except Exception as fault:  # noqa: BLE001 - whatever it is, every invocation must end
            error = fault
        for position in sorted(open_positions):
            end(position, error or TargetUnavailable("the message has no result and stays at its source"))

    def _leave_line(self, left: _Invocation, error: BaseException | None) -> None:
        """Let the next messages of its key follow, or stay at the source with this one."""
        key = left.key
        if key is None:
            return
        if error is not None:
            for invocation in self._behind.pop(key, ()):
                invocation.end(error)
        self._on_line[key] -= 1
        if not self._on_line[key]:
            del self._on_line[key]
            for invocation in self._behind.pop(key, ()):
                self._gather(invocation)


def _session_and_number(content: bytes) -> tuple[str | None, int]:
    """Return the session of a message and its sequence number; a message that cannot be read has no session."""
    try:
        message = Message.received(content, _NOWHERE)
        session = message.session_id
    except MessageRejected:
        return None, 0
    return session, message.arrival.sequence_number or 0
