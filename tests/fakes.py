"""Outputs, a settlement service, a journal and a sleep with a chosen behaviour, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from shared.access.secrets import open_secrets
from shared.clock import Clock, ManualClock
from shared.editors.options import TaskFacts
from shared.errors import BuswayError, LockLost, MessageRejected, TargetUnavailable
from shared.journal.log import LogJournal
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Flush, Outgoing, Record
from tests.messages import ENQUEUED, LOCK_MILLISECONDS

SOMEWHERE = Origin("target", "entity")


def clock_at_delivery() -> ManualClock:
    return ManualClock(datetime.fromtimestamp(ENQUEUED / 1000, UTC))


def sleep_by(clock: ManualClock, pauses: list[float] | None = None) -> Callable[[float], Awaitable[None]]:
    """Return a sleep that moves *clock* instead of waiting, and notes how long it was asked to."""

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if pauses is not None:
            pauses.append(seconds)

    return sleep


def task_facts(settings: Mapping[str, str] | None = None, clock: Clock | None = None) -> TaskFacts:
    """Return what an editor of the task `copy` from west/orders may know."""
    settings = settings or {}
    return TaskFacts("copy", Origin("west", "orders"), settings, open_secrets(settings), clock or clock_at_delivery())


class OutputThatAccepts:
    """Takes everything and keeps it, by entity."""

    def __init__(self) -> None:
        self.accepted: dict[str, list[Outgoing]] = {}
        self.calls: list[int] = []
        self.timeouts: list[float] = []

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        self.calls.append(len(messages))
        self.timeouts.append(timeout_seconds)
        answers: list[BuswayError | None] = []
        for message in messages:
            answer = self.answer(message)
            if answer is None:
                self.accepted.setdefault(entity, []).append(message)
            answers.append(answer)
            if answer is not None and not isinstance(answer, MessageRejected):
                break
        return answers + [answers[-1]] * (len(messages) - len(answers))

    async def close(self) -> None:
        pass

    def answer(self, _: Outgoing, /) -> BuswayError | None:
        return None

    def messages(self, entity: str) -> list[Message]:
        return [Message.received(message.content, SOMEWHERE) for message in self.accepted.get(entity, [])]

    def ids(self, entity: str) -> list[str | None]:
        return [message.message_id for message in self.accepted.get(entity, [])]


class OutputThatFailsOnce(OutputThatAccepts):
    """Takes *after* messages, is away for one, and takes everything from then on."""

    def __init__(self, after: int = 0, error: BuswayError | None = None) -> None:
        super().__init__()
        self._left = after
        self._error: BuswayError | None = error or TargetUnavailable("target/entity: away")

    def answer(self, _: Outgoing, /) -> BuswayError | None:
        if self._left:
            self._left -= 1
            return None
        error, self._error = self._error, None
        return error


class OutputThatRejects(OutputThatAccepts):
    """Takes all but the messages of which a predicate is true."""

    def __init__(self, is_refused: Callable[[Outgoing], bool]) -> None:
        super().__init__()
        self._is_refused = is_refused

    def answer(self, message: Outgoing, /) -> BuswayError | None:
        return MessageRejected("TargetRefusedMessage", "target/entity: no") if self._is_refused(message) else None


class OutputThatIsDown(OutputThatAccepts):
    """Takes nothing until it is put up; says how long to wait if it was given a time."""

    def __init__(self, *, retry_after: float | None = None, error: BuswayError | None = None) -> None:
        super().__init__()
        wait = None if retry_after is None else timedelta(seconds=retry_after)
        self._error: BuswayError | None = error or TargetUnavailable("target/entity: away", retry_after=wait)

    def put_up(self) -> None:
        self._error = None

    def answer(self, _: Outgoing, /) -> BuswayError | None:
        return self._error


class SettlementInMemory:
    """
    The host's settlement service: locks of a minute from now on, each until it is renewed, lost or settled.

    *error* answers every call; `spurious` is the number of renewals that are refused although the lock is held.
    """

    def __init__(self, clock: Clock, *, error: BuswayError | None = None) -> None:
        self.clock = clock
        self.error = error
        self.spurious = 0
        self.renewed: list[tuple[float, bytes]] = []
        self.asked: list[bytes] = []
        self.completed: list[bytes] = []
        self.abandoned: list[bytes] = []
        self.dead: list[tuple[bytes, str, str]] = []
        self.released = 0
        self._ends: dict[bytes, float] = {}
        self._first = clock.monotonic() + LOCK_MILLISECONDS / 1000

    def begin(self) -> None:
        """Lock what is delivered now."""
        self._ends.clear()
        self._first = self.clock.monotonic() + LOCK_MILLISECONDS / 1000

    def lose(self, *tokens: bytes) -> None:
        """Lose these locks, or all."""
        self._ends.update(dict.fromkeys(tokens, 0.0))
        if not tokens:
            self._ends.clear()
            self._first = 0.0

    def is_lost(self, token: bytes) -> bool:
        """Return whether the lock of a message has ended."""
        return self.clock.monotonic() >= self._ends.get(token, self._first)

    @property
    def times(self) -> list[float]:
        """When something was renewed."""
        return [*dict.fromkeys(when for when, _ in self.renewed)]

    async def renew(self, token: bytes, *, timeout_seconds: float) -> None:
        assert timeout_seconds > 0
        self.asked.append(token)
        await asyncio.sleep(0)
        if self.spurious:
            self.spurious -= 1
            raise LockLost("west/orders: refused")
        self._check(token)
        self.renewed.append((self.clock.monotonic(), token))
        self._ends[token] = self.clock.monotonic() + LOCK_MILLISECONDS / 1000

    async def complete(self, token: bytes, *, timeout_seconds: float) -> None:
        assert timeout_seconds > 0
        self._check(token)
        self.completed.append(token)

    async def abandon(self, token: bytes, *, timeout_seconds: float) -> None:
        assert timeout_seconds > 0
        self._check(token)
        self.abandoned.append(token)

    async def dead_letter(self, token: bytes, reason: str, description: str, *, timeout_seconds: float) -> None:
        assert timeout_seconds > 0
        self._check(token)
        self.dead.append((token, reason, description))

    def _check(self, token: bytes) -> None:
        if self.error is not None:
            raise self.error
        if self.is_lost(token):
            raise LockLost("west/orders: lost")


class SessionInMemory:
    """A session that a delivery is from."""

    def __init__(self, settlement: SettlementInMemory) -> None:
        self.locked_until: int | None = None
        self.error: BuswayError | None = None
        self._settlement = settlement

    async def renew(self, *, timeout_seconds: float) -> int:
        if self.error is not None:
            raise self.error
        await self._settlement.renew(b"session", timeout_seconds=timeout_seconds)
        return round(self._settlement.clock.now().timestamp() * 1000) + LOCK_MILLISECONDS

    async def release(self, *, timeout_seconds: float) -> None:
        assert timeout_seconds > 0
        self._settlement.released += 1


class JournalInMemory(LogJournal):
    """Keeps its records, and asks for nothing of what is received."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def decided(self, records: Sequence[Record], batch_id: int) -> Flush:  # noqa: ARG002 - required by the protocol
        return partial(self._keep, records)

    async def _keep(self, records: Sequence[Record]) -> None:
        self.records += records
