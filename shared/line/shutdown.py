"""The request to shut down, for code that would otherwise wait for minutes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_LOOK_SECONDS = 0.25


@dataclass(eq=False)
class Shutdown:
    """A flag that is set once, from any thread or signal handler, and ends every sleep."""

    is_requested: bool = False
    in_progress: int = 0
    """The deliveries that have not ended."""

    def request(self) -> None:
        """Request the shutdown."""
        self.is_requested = True

    @contextmanager
    def delivery(self) -> Iterator[None]:
        """Return a context for a delivery that is in progress."""
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1

    async def sleep(self, seconds: float) -> None:
        """Sleep for *seconds*, or until the shutdown is requested."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        # An event would belong to one loop, and could not be set from the handler of a signal.
        while not self.is_requested and (left := end - loop.time()) > 0:  # noqa: ASYNC110 - see above
            await asyncio.sleep(min(left, _LOOK_SECONDS))
