"""The wish to end, for what would otherwise wait for minutes."""

import asyncio

_LOOK_SECONDS = 0.25


class Shutdown:
    """Set once, from any thread or a signal's handler; a sleep notices it."""

    def __init__(self) -> None:
        """Let everything run."""
        self.is_requested = False

    def request(self) -> None:
        """Ask everything that waits to give up."""
        self.is_requested = True

    async def sleep(self, seconds: float) -> None:
        """Sleep for so long, or until the end is asked for."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        # An event would belong to one loop, and could not be set from the handler of a signal.
        while not self.is_requested and (left := end - loop.time()) > 0:  # noqa: ASYNC110 - see above
            await asyncio.sleep(min(left, _LOOK_SECONDS))
