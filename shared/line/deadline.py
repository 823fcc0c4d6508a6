"""
The deadline of a delivery.

The host abandons what is not settled when the function fails. Each time, every such message loses a delivery attempt,
and one without attempts left goes to the source's dead-letter queue. So a delivery whose target is unavailable waits
for much longer than its locks last: docs/decisions/0091.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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


@dataclass(eq=False)
class Deadline:
    """The time that a delivery has, counted from its start."""

    clock: Clock
    sleep: Callable[[float], Awaitable[None]]
    end: float
    """When it is over at the latest, by the stopwatch of the clock; its locks may end before."""
    locks: Locks | None
    """None where the source has none."""
    is_shutting_down: Callable[[], bool]
    retries: int = 0

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
    def attempt_seconds(self) -> float:
        """The time that an attempt may take."""
        end = self.end if self.locks is None else min(self.end, self.locks.deadline)
        return max(min(end - self.clock.monotonic(), LONGEST_ATTEMPT_SECONDS), SHORTEST_ATTEMPT_SECONDS)

    @property
    def now(self) -> float:
        """The time of the clock that the deadline is measured with."""
        return self.clock.monotonic()

    async def pause(self, seconds: float, *, is_retry: bool = True) -> bool:
        """Sleep for *seconds* and renew the locks; return whether another attempt fits. Raises LockLost."""
        resume = self.clock.monotonic() + seconds
        while not self.is_shutting_down():
            if self.locks is not None:
                await self.locks.renew()
            now = self.clock.monotonic()
            left = max(resume - now, 0.0)
            if now + left + SHORTEST_ATTEMPT_SECONDS > self.end:
                return False
            if self.locks is not None and not self.locks.can_wait(left, SHORTEST_ATTEMPT_SECONDS):
                return False
            if not left:
                self.retries += is_retry
                return True
            await self.sleep(left if self.locks is None else min(left, self.locks.next_renewal()))
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
        while not self.is_shutting_down():
            await self.sleep(locks.next_renewal())
            await locks.renew()

    async def outlast_session(self) -> None:
        """Wait until the lock of a session that could not be renewed has ended, or the process ends."""
        if self.locks is not None and not self.is_shutting_down() and (seconds := self.locks.seconds_of_session):
            await self.sleep(seconds)
