"""The clock of the relay client and listener, which is passed in, so that tests need not wait."""

import asyncio
import time
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Clock(Protocol):
    """Returns the time and waits."""

    def now(self) -> float:
        """Return the time. Units: seconds since 1970, UTC."""

    def monotonic(self) -> float:
        """Return a time that never goes back. Units: seconds."""

    async def wait(self, seconds: float) -> None:
        """Wait that long."""


class SystemClock:
    """The system's clock."""

    def now(self) -> float:
        """Return the time."""
        return time.time()

    def monotonic(self) -> float:
        """Return a time that never goes back."""
        return time.monotonic()

    async def wait(self, seconds: float) -> None:
        """Wait that long."""
        await asyncio.sleep(seconds)


async def is_done_within(clock: Clock, seconds: float, work: "asyncio.Future[Result]") -> bool:
    """Wait for *work* at most that long, and return whether it is done; it continues otherwise."""
    limit = asyncio.ensure_future(clock.wait(seconds))
    try:
        waited: list[asyncio.Future[Any]] = [limit, work]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await ended(limit)
    return work.done()


async def ended(task: "asyncio.Future[Result]") -> None:
    """Cancel a task if it is not done, and wait until it is; its error is not raised."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
