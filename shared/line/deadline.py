"""
The deadline of a delivery.

The host abandons what is not settled when the function fails. Each time, every such message loses a delivery attempt,
and one without attempts left goes to the source's dead-letter queue. So a delivery whose target is unavailable waits
for much longer than its locks last: docs/decisions/0091.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from shared.clock import Clock
from shared.errors import LockLost
from shared.line.locks import Locks

# Messages of a partitioned entity could not be settled after 17 to 20 minutes, however often their locks were renewed.
DEFAULT_HOLD = timedelta(minutes=15)
# At a scale-in the platform ends what runs for longer than an hour.
LONGEST_HOLD = timedelta(minutes=50)

# Opening a connection takes most of a second; an attempt without the time for it would hide the last error.
SHORTEST_ATTEMPT_SECONDS = 2.0
# A target that has not answered by then has lost the connection silently.
LONGEST_ATTEMPT_SECONDS = 120.0


class Deadline:
    """The time that a delivery has, counted from its start."""

    def __init__(
        self,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
        *,
        limit_seconds: float,
        locks: Locks | None,
        is_shutting_down: Callable[[], bool] = lambda: False,
    ) -> None:
        """Give a delivery *limit_seconds* at most, and no longer than its *locks* last or are renewed."""
        self._clock = clock
        self._sleep = sleep
        self._is_shutting_down = is_shutting_down
        self._end = clock.monotonic() + limit_seconds
        self.locks = locks
        """The locks that are renewed here, None where the source has none or the host renews them."""
        self.retries = 0

    async def begin(self) -> None:
        """
        Renew what is due before anything is sent; raises LockLost if no lock lasts.

        A lock that should have expired is due, and that of a session in the middle of many batches.
        """
        if self.locks is None or not self.locks.is_due:
            return
        await self.locks.renew()
        if not self.locks.can_wait(0.0, 0.0):
            raise LockLost("the locks of the batch have ended, and cannot be renewed")

    @property
    def is_over(self) -> bool:
        """Whether the process ends, so that nothing waits any more."""
        return self._is_shutting_down()

    @property
    def attempt_seconds(self) -> float:
        """The time that an attempt may take."""
        end = self._end if self.locks is None else min(self._end, self.locks.deadline)
        return max(min(end - self._clock.monotonic(), LONGEST_ATTEMPT_SECONDS), SHORTEST_ATTEMPT_SECONDS)

    @property
    def now(self) -> float:
        """The time of the clock that the deadline is measured with."""
        return self._clock.monotonic()

    async def pause(self, seconds: float, *, is_retry: bool = True) -> bool:
        """Sleep for *seconds* and renew the locks; return whether another attempt fits. Raises LockLost."""
        resume = self._clock.monotonic() + seconds
        while not self.is_over:
            if self.locks is not None:
                await self.locks.renew()
            now = self._clock.monotonic()
            left = max(resume - now, 0.0)
            if now + left + SHORTEST_ATTEMPT_SECONDS > self._end:
                return False
            if self.locks is not None and not self.locks.can_wait(left, SHORTEST_ATTEMPT_SECONDS):
                return False
            if not left:
                self.retries += is_retry
                return True
            await self._sleep(left if self.locks is None else min(left, self.locks.next_renewal()))
        return False

    async def renew_during(self, work: Awaitable[None]) -> None:
        """
        Await *work* that is no attempt, such as edits that take longer than a lock, and renew the locks meanwhile.

        Raises: what *work* raises, or LockLost.
        """
        if self.locks is None or not self.locks.are_renewed_here:
            await work
            return
        renewing = asyncio.create_task(self._renew(self.locks))
        try:
            await work
        finally:
            renewing.cancel()
            (error,) = await asyncio.gather(renewing, return_exceptions=True)
        if isinstance(error, Exception):
            raise error

    async def _renew(self, locks: Locks) -> None:
        """Renew *locks* until cancelled, or until the process ends; raises LockLost."""
        while not self.is_over:
            await self._sleep(locks.next_renewal())
            await locks.renew()

    async def outlast_session(self) -> None:
        """Wait until the lock of a session that could not be renewed has ended, or the process ends."""
        if self.locks is not None and not self.is_over and (seconds := self.locks.seconds_of_session):
            await self._sleep(seconds)
