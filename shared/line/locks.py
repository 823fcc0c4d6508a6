"""
The locks on the messages of a delivery: renewed, and messages settled one by one, through the host that holds them.

1. Each message of a queue or subscription has a lock of its own. If it is lost, the source delivers the message again;
   the others go on.
2. With sessions the session is locked, not its messages: their annotation says the year 10000. The end is what the
   trigger reports, or the answer to a renewal. If the lock is lost, the whole delivery goes back.
3. The answer to the renewal of a message has no end. The lock then lasts as long as the longest that was seen.
4. A renewal is refused now and then although the lock is held: it is lost if it is refused twice.

Sources: docs/decisions/0091.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import cached_property

from shared.clock import Clock
from shared.errors import BuswayError, LockLost, TargetRefused, TargetUnavailable
from shared.protocols import HeldSession, Settlement

_LOGGER = logging.getLogger("busway.pipeline")

# Assumed for a lock whose end is not known.
UNKNOWN_LOCK_SECONDS = 30.0
# The service allows five minutes. An end beyond that, and what clocks may differ by, says nothing.
_LONGEST_LOCK_SECONDS = 330.0
# Kept of a lock for the journal, and for the host to settle: a quarter of it, but not more than this.
LOCK_MARGIN_SECONDS = 10.0
SETTLEMENT_SECONDS = 10.0
RENEWAL_RETRY_SECONDS = 2.0

_SESSION = b""
"""The key of the lock of a session, among the tokens of messages."""


class SourceLocks:
    """What a task knows of the locks at its source."""

    def __init__(self, task: str, place: str, settlement: Settlement, clock: Clock) -> None:
        """Renew the locks at *place* (site/entity) through *settlement*."""
        self.task = task
        self._place = place
        self.settlement = settlement
        self.clock = clock
        self._longest: float | None = None
        self._is_failing = False

    @property
    def seconds(self) -> float:
        """How long a lock lasts once it is renewed."""
        return self._longest or UNKNOWN_LOCK_SECONDS

    def seconds_left(self, locked_until: int | None) -> float | None:
        """Return the seconds that a lock has left, None if its end in milliseconds since 1970 UTC says nothing."""
        if locked_until is None:
            return None
        left = locked_until / 1000 - self.clock.now().timestamp()
        if left > _LONGEST_LOCK_SECONDS:
            return None
        self._longest = max(left, self._longest or 0.0)
        return max(left, 0.0)

    def log(self, error: BuswayError | None) -> None:
        """Log the first of several *error*s in a row; None: a lock was renewed."""
        if error is not None and not self._is_failing:
            _LOGGER.error(
                "%s: batches from %s wait only as long as their locks last, these cannot be renewed: %s",
                self.task,
                self._place,
                error,
            )
        self._is_failing = error is not None


class Locks:
    """The locks on one delivery."""

    def __init__(
        self,
        source: SourceLocks,
        locked_until: Mapping[bytes, int | None],
        session: HeldSession | None = None,
        *,
        host_renews: bool = False,
    ) -> None:
        """
        Renew the lock of *session*, or without one those of the messages, unless the *host_renews* them.

        Shape:   *locked_until* has the end of each lock by lock token, in milliseconds since 1970 UTC.
        """
        self._source = source
        self._session = session
        self._now = source.clock.monotonic
        self._began = self._now()
        self._locked_until = locked_until
        self._reported = {} if host_renews else locked_until if session is None else {_SESSION: session.locked_until}
        self._unknown: set[bytes] = set()
        self._refused: set[bytes] = set()
        self._lost: set[bytes] = set()
        self._settled: set[bytes] = set()
        self._ending: float | None = None
        self._turn = asyncio.Lock()

    @property
    def are_renewed_here(self) -> bool:
        """Whether there is any lock that the host does not renew."""
        return bool(self._reported)

    def is_lost(self, token: bytes | None) -> bool:
        """Return whether the lock of a message was lost: its source delivers it again."""
        return token in self._lost

    @property
    def deadline(self) -> float:
        """When the messages must have their result, in seconds of the monotonic clock, unless a lock is renewed."""
        return self._first_end - self._margin

    @property
    def is_due(self) -> bool:
        """
        Whether a lock is to be renewed before a send, which takes less than half of its time.

        That of a session is, if it was accepted for an earlier batch; that of a message only if it should have ended.
        """
        left = self._first_end - self._now()
        return left <= (0.0 if self._session is None else self._source.seconds / 2)

    def next_renewal(self) -> float:
        """Return the seconds until a lock is to be renewed."""
        ends = [end for key, end in self._ends.items() if key not in self._refused]
        left = min(ends, default=float("inf")) - self._now() - self._source.seconds / 2
        return max(left, RENEWAL_RETRY_SECONDS)

    def can_wait(self, seconds: float, attempt_seconds: float) -> bool:
        """
        Return whether a lock lasts for a wait of *seconds* and an attempt after it.

        A message whose lock does not is left to its source. A lock that can be renewed need not last for the wait.
        """
        if self._ending is not None:
            return False
        now, margin, had = self._now(), self._margin, bool(self._ends)
        for key, end in list(self._ends.items()):
            needed = attempt_seconds + (seconds if key in self._refused else 0.0)
            if end - margin < now + needed:
                del self._ends[key]
                if key == _SESSION:  # until its end, what the session has sent can be completed
                    self._ending = end
                else:
                    self._lost.add(key)
        return bool(self._ends) or not had

    @property
    def seconds_of_session(self) -> float:
        """
        Return the seconds until the host has lost a session whose lock is about to end; 0 for all other locks.

        Until then it delivers the messages again at once, and each time costs them a delivery.
        """
        return 0.0 if self._ending is None else max(self._ending - self._now(), 0.0) + RENEWAL_RETRY_SECONDS

    async def renew(self) -> None:
        """Renew the locks that have less than half of their time left; raises LockLost if that of a session is lost."""
        async with self._turn:  # an editor that asks a store renews too, and so does the record of an outcome
            if _SESSION in self._lost:
                raise LockLost(f"{self._source.task}: the session of the batch was lost")
            soon = self._now() + self._source.seconds / 2
            due = [key for key, end in self._ends.items() if key in self._unknown or end <= soon]
            errors = await asyncio.gather(*(self._renew(key) for key in due if key not in self._refused))
        if errors:
            self._source.log(next((error for error in errors if error is not None), None))

    async def complete(self, tokens: Iterable[bytes | None]) -> None:
        """Complete messages; one that cannot be is completed by the host, or delivered again and recognized."""
        if _SESSION in self._lost:
            return

        async def complete(token: bytes) -> BuswayError | None:
            try:
                await self._source.settlement.complete(token, timeout_seconds=SETTLEMENT_SECONDS)
            except (TargetUnavailable, TargetRefused) as error:
                return error
            self._settle(token)
            return None

        named = {token for token in tokens if token is not None}
        answers = await asyncio.gather(*map(complete, named - self._settled))
        errors = [answer for answer in answers if answer is not None]
        if errors:
            _LOGGER.warning("%s: %d messages were not completed: %s", self._source.task, len(errors), errors[0])

    async def dead_letter(self, token: bytes, reason: str, description: str) -> None:
        """Dead-letter a message unless that is done; raises as `shared.protocols.Settlement`."""
        if token in self._settled:
            return
        try:
            await self._source.settlement.dead_letter(token, reason, description, timeout_seconds=SETTLEMENT_SECONDS)
        except LockLost:
            self._lost.add(token)
            raise
        self._settle(token)

    async def give_back(self) -> None:
        """Give messages that are not settled, or their session, back to the source as far as that is possible."""
        abandon, seconds = self._source.settlement.abandon, SETTLEMENT_SECONDS
        try:
            if self._session is not None:
                await self._session.release(timeout_seconds=seconds)
            else:
                unsettled = self._locked_until.keys() - self._settled - self._lost
                await asyncio.gather(*(abandon(token, timeout_seconds=seconds) for token in unsettled))
        except (TargetUnavailable, TargetRefused) as error:
            _LOGGER.warning("%s: messages stay locked until their locks end: %s", self._source.task, error)

    def _settle(self, token: bytes) -> None:
        self._settled.add(token)
        self._ends.pop(token, None)

    async def _renew(self, key: bytes) -> BuswayError | None:
        """Renew one lock; return why that is not possible now."""
        try:
            try:
                end = await self._new_end(key)
            except LockLost:
                end = await self._new_end(key)
        except LockLost as lost:
            del self._ends[key]
            self._lost.add(key)
            if key == _SESSION:
                raise
            _LOGGER.warning("%s: a message is delivered again: %s", self._source.task, lost)
        except TargetRefused as error:
            self._refused.add(key)
            return error
        except TargetUnavailable as error:
            return error
        else:
            self._ends[key] = end
            self._unknown.discard(key)
        return None

    async def _new_end(self, key: bytes) -> float:
        asked = self._now()
        timeout = max(min(self._ends[key] - asked, SETTLEMENT_SECONDS), RENEWAL_RETRY_SECONDS)
        if self._session is None:
            await self._source.settlement.renew(key, timeout_seconds=timeout)
            return asked + self._source.seconds
        left = self._source.seconds_left(await self._session.renew(timeout_seconds=timeout))
        return asked + (self._source.seconds if left is None else left)

    @cached_property
    def _ends(self) -> dict[bytes, float]:
        """When each lock ends, in seconds of the monotonic clock; without a wait only the first end is needed."""
        left = {key: self._source.seconds_left(end) for key, end in self._reported.items()}
        self._unknown = {key for key, each in left.items() if each is None}
        unknown, now = self._began + UNKNOWN_LOCK_SECONDS, self._now()
        return {key: unknown if each is None else now + each for key, each in left.items()}

    @property
    def _first_end(self) -> float:
        """When the first lock ends."""
        if "_ends" not in self.__dict__ and self._reported:
            ends = [end for end in self._reported.values() if end is not None]
            if len(ends) == len(self._reported):
                # That of the last one says how long a lock lasts.
                first, last = self._source.seconds_left(min(ends)), self._source.seconds_left(max(ends))
                if first is not None and last is not None:
                    return self._now() + first
        return min(self._ends.values(), default=float("inf"))

    @property
    def _margin(self) -> float:
        return min(self._source.seconds / 4, LOCK_MARGIN_SECONDS)
