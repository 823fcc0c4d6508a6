"""
How long a batch may wait for its targets, and the renewal of its locks meanwhile.

The host renews no lock for a batch, and abandons all of it when the function fails: each time that costs every message
a delivery attempt, and a message without attempts left goes to the source's dead-letter queue. So a batch whose target
is away is held, in one delivery, for much longer than its lock lasts: docs/decisions/0004.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from shared.clock import Clock
from shared.errors import BuswayError, LockLost, TargetRefused, TargetUnavailable

_LOGGER = logging.getLogger("busway.pipeline")

# Ten deliveries, the default MaxDeliveryCount, are then more than twelve hours: a night. Both stay below the
# functionTimeout of host.json, at which the host ends the worker with all that runs in it.
DEFAULT_HOLD = timedelta(minutes=75)
LONGEST_HOLD = timedelta(minutes=110)

# Left of a lock for the journal and for the host to settle the batch: a quarter of it, but not more than this.
LOCK_MARGIN_SECONDS = 10.0
# How long a lock is taken to last whose end the service did not tell.
UNKNOWN_LOCK_SECONDS = 30.0
# Opening a connection takes a good part of a second; an attempt without the time for it would hide the last answer.
SHORTEST_ATTEMPT_SECONDS = 2.0
# A target that has not answered by then has lost the connection without a word.
LONGEST_ATTEMPT_SECONDS = 120.0
RENEWAL_SECONDS = 10.0
RENEWAL_RETRY_SECONDS = 2.0

type Renew = Callable[[float], Awaitable[int]]
"""Renews all locks of the batch within so many seconds; raises and returns as `shared.protocols.Locks.renew`."""


class Hold:
    """The time of one batch; it begins when it is made."""

    def __init__(
        self,
        task: str,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
        *,
        limit_seconds: float,
        locked_until: int | None,
        renew: Renew | None,
        is_shutting_down: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Hold a batch for *limit_seconds* at most, and for as long as its locks last or are renewed.

        Units:   *locked_until* is the earliest end of its locks, in milliseconds since 1970 UTC, None where the service
                 named none. Without it and without *renew* there are no locks (Event Hubs).
        """
        self._task = task
        self._clock = clock
        self._sleep = sleep
        self._renew = renew
        self._is_shutting_down = is_shutting_down
        self._end = clock.monotonic() + limit_seconds
        self._lock_seconds = 0.0
        self._lock_end: float | None = None
        self._is_lock_known = locked_until is not None
        self._is_told = False
        self.retries = 0
        if locked_until is not None:
            self._note_lock(locked_until)
        elif renew is not None:
            self._lock_seconds = UNKNOWN_LOCK_SECONDS
            self._lock_end = clock.monotonic() + UNKNOWN_LOCK_SECONDS

    async def begin(self) -> None:
        """Renew a lock that should be over already, before anything is sent; raises LockLost."""
        if self._lock_end is not None and self._lock_end <= self._clock.monotonic():
            await self._renew_if_due()

    @property
    def attempt_seconds(self) -> float:
        """The time that an attempt may take."""
        left = min(self._end, self._lock_deadline) - self._clock.monotonic()
        return max(min(left, LONGEST_ATTEMPT_SECONDS), SHORTEST_ATTEMPT_SECONDS)

    async def pause(self, seconds: float) -> bool:
        """Sleep for *seconds* and keep the locks; False when no time is left for another attempt. Raises LockLost."""
        resume = self._clock.monotonic() + seconds
        while not self._is_shutting_down():
            await self._renew_if_due()
            now = self._clock.monotonic()
            # With renewal at hand the lock need only last until the next one.
            needed_until = (resume if self._renew is None else now) + SHORTEST_ATTEMPT_SECONDS
            if max(resume, now) + SHORTEST_ATTEMPT_SECONDS > self._end or needed_until > self._lock_deadline:
                return False
            if resume <= now:
                self.retries += 1
                return True
            await self._sleep(min(resume - now, self._seconds_to_renewal()))
        return False

    @property
    def _lock_deadline(self) -> float:
        if self._lock_end is None:
            return float("inf")
        return self._lock_end - min(self._lock_seconds / 4, LOCK_MARGIN_SECONDS)

    def _note_lock(self, locked_until: int) -> None:
        self._lock_seconds = max(locked_until / 1000 - self._clock.now().timestamp(), 0.0)
        self._lock_end = self._clock.monotonic() + self._lock_seconds

    def _seconds_to_renewal(self) -> float:
        if self._renew is None or self._lock_end is None:
            return float("inf")
        left = self._lock_end - self._clock.monotonic() - self._lock_seconds / 2
        return max(left, RENEWAL_RETRY_SECONDS)

    async def _renew_if_due(self) -> None:
        if self._renew is None or self._lock_end is None:
            return
        left = self._lock_end - self._clock.monotonic()
        if self._is_lock_known and left > self._lock_seconds / 2:
            return
        try:
            locked_until = await self._renew(max(min(left, RENEWAL_SECONDS), RENEWAL_RETRY_SECONDS))
        except LockLost:
            raise
        except TargetRefused as error:
            self._renew = None
            self._tell(error)
        except TargetUnavailable as error:
            self._tell(error)
        else:
            self._is_lock_known = True
            self._is_told = False
            self._note_lock(locked_until)

    def _tell(self, error: BuswayError) -> None:
        if not self._is_told:
            self._is_told = True
            _LOGGER.error("%s: held for no longer than its locks last, they cannot be renewed: %s", self._task, error)
