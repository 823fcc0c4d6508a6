"""Time that stands still until a test moves it."""

import asyncio
import heapq
import itertools
from typing import Any


class ManualTime:
    """A clock for busway_clients.relay; waits end when the test has advanced it far enough."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._waiting: list[Any] = []
        self._numbers = itertools.count()

    def now(self) -> Any:
        return self._now

    def monotonic(self) -> Any:
        return self._now

    async def wait(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        due = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self._now + seconds, next(self._numbers), seconds, due))
        await due

    def advance(self, seconds: float) -> None:
        self._now += seconds
        while self._waiting and self._waiting[0][0] <= self._now:
            due = heapq.heappop(self._waiting)[-1]
            if not due.done():
                due.set_result(None)

    def is_waited_for(self, shortest: float, longest: float) -> Any:
        """Return whether a wait with a length between the two is in progress."""
        return any(shortest <= seconds <= longest for _, _, seconds, due in self._waiting if not due.done())

    async def until_waited_for(self, shortest: float, longest: Any = None) -> None:
        await until(lambda: self.is_waited_for(shortest, longest or shortest))


async def until(condition: Any) -> None:
    """Return once a condition holds; the test's own limit is the bound."""
    while not condition():  # noqa: ASYNC110 - it holds for what other parts do, which set no event
        await asyncio.sleep(0.001)


def run(test: Any) -> Any:
    """Run an asynchronous test, bounded so that none hangs."""

    async def bounded() -> Any:
        async with asyncio.timeout(30):
            return await test

    return asyncio.run(bounded())
