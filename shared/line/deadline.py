"""
The deadline of a batch, and the renewal of its locks until then.

The host renews no lock for a batch, and abandons the whole batch when the function fails. Each time, every message
loses a delivery attempt, and one without attempts left goes to the source's dead-letter queue. So a batch whose target
is unavailable waits, in one delivery, for much longer than its lock lasts: docs/decisions/0004.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from shared.clock import Clock
from shared.errors import BuswayError, LockLost, TargetRefused, TargetUnavailable

_LOGGER = logging.getLogger("busway.pipeline")

# Ten deliveries, the default MaxDeliveryCount, then take more than twelve hours: a night. Both limits are below the
# functionTimeout of host.json, at which the host ends the worker with everything that runs in it.
DEFAULT_HOLD = timedelta(minutes=75)
LONGEST_HOLD = timedelta(minutes=110)

# Kept of a lock for the journal, and for the host to settle the batch: a quarter of it, but not more than this.
LOCK_MARGIN_SECONDS = 10.0
# Assumed for a lock whose end the service did not state.
UNKNOWN_LOCK_SECONDS = 30.0
# Opening a connection takes most of a second; an attempt without the time for it would hide the last error.
SHORTEST_ATTEMPT_SECONDS = 2.0
# A target that has not answered by then has lost the connection silently.
LONGEST_ATTEMPT_SECONDS = 120.0
RENEWAL_SECONDS = 10.0
RENEWAL_RETRY_SECONDS = 2.0

type Renew = Callable[[float], Awaitable[int]]
"""Renews all locks of the batch, with a timeout in seconds; raises and returns as `shared.protocols.Locks.renew`."""


class Deadline:
    """The time that a batch has, counted from its delivery."""

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
        Give a batch *limit_seconds* at most, and no longer than its locks last or are renewed.

        Units:   *locked_until* is the earliest end of its locks, in milliseconds since 1970 UTC, None if the service
                 stated none. Without it and without *renew* there are no locks (Event Hubs).
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
        self._is_logged = False
        self.retries = 0
        if locked_until is not None:
            self._note_lock(locked_until)
        elif renew is not None:
            self._lock_seconds = UNKNOWN_LOCK_SECONDS
            self._lock_end = clock.monotonic() + UNKNOWN_LOCK_SECONDS

    async def begin(self) -> None:
        """Renew a lock that should have expired, before anything is sent; raises LockLost."""
        if self._lock_end is not None and self._lock_end <= self._clock.monotonic():
            await self._renew_if_due()

    @property
    def attempt_seconds(self) -> float:
        """The time that an attempt may take."""
        left = min(self._end, self._lock_deadline) - self._clock.monotonic()
        return max(min(left, LONGEST_ATTEMPT_SECONDS), SHORTEST_ATTEMPT_SECONDS)

    @property
    def now(self) -> float:
        """The time of the clock that the deadline is measured with."""
        return self._clock.monotonic()

    async def pause(self, seconds: float, *, is_retry: bool = True) -> bool:
        """Sleep for *seconds* and renew the locks; return whether another attempt fits. Raises LockLost."""
        resume = self._clock.monotonic() + seconds
        while not self._is_shutting_down():
            await self._renew_if_due()
            now = self._clock.monotonic()
            # If the lock can be renewed, it need only last until the next renewal.
            needed_until = (resume if self._renew is None else now) + SHORTEST_ATTEMPT_SECONDS
            if max(resume, now) + SHORTEST_ATTEMPT_SECONDS > self._end or needed_until > self._lock_deadline:
                return False
            if resume <= now:
                self.retries += is_retry
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
            self._log(error)
        except TargetUnavailable as error:
            self._log(error)
        else:
            self._is_lock_known = True
            self._is_logged = False
            self._note_lock(locked_until)

    def _log(self, error: BuswayError) -> None:
        if not self._is_logged:
            self._is_logged = True
            _LOGGER.error(
                "%s: the batch waits only as long as its locks last, they cannot be renewed: %s", self._task, error
            )
