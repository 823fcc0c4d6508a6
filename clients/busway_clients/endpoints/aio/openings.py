"""Links that are opened in tasks of their own, so that nobody who has a good one has to wait for the next."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.openings import BESIDE_SECONDS, StillOpening

Link = TypeVar("Link")


class Openings(Generic[Link]):
    """The links that one client opens, one call at a time."""

    def __init__(
        self,
        opening: Callable[[Endpoint], Coroutine[Any, Any, Link]],
        closing: Callable[[Link], Awaitable[None]],
        open_seconds: float,
        beside_seconds: float = BESIDE_SECONDS,
    ) -> None:
        """Open by *opening* within *open_seconds*; *closing* is for links that nobody wants any more."""
        self._beside_seconds = beside_seconds
        self._opening = opening
        self._closing = closing
        self._open_seconds = open_seconds
        self._under_way: dict[Endpoint, tuple[asyncio.Task[Link], float]] = {}

    async def link(self, endpoint: Endpoint, *, beside: bool) -> Link:
        """
        Return a link to *endpoint*, waiting for it as long as it may take, or *beside_seconds* where there is another.

        Raises what its opening raises; StillOpening where it is not open *beside* the other yet; TimeoutError when its
        time is over.
        """
        if endpoint not in self._under_way:
            self._under_way[endpoint] = (asyncio.create_task(self._opening(endpoint)), time.monotonic())
        task, began = self._under_way[endpoint]
        patience = min(self._beside_seconds, self._open_seconds) if beside else self._open_seconds
        await asyncio.wait({task}, timeout=max(began + patience - time.monotonic(), 0.0))
        if task.done():
            del self._under_way[endpoint]
            return task.result()
        if beside and time.monotonic() < began + self._open_seconds:
            raise StillOpening
        await self._left(endpoint)
        raise TimeoutError(f"no link could be opened within {self._open_seconds:g} s")

    async def leave(self) -> None:
        """Want none of the links that are on their way any more."""
        for endpoint in [*self._under_way]:
            await self._left(endpoint)

    async def _left(self, endpoint: Endpoint) -> None:
        task, _ = self._under_way.pop(endpoint)
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await self._closing(outcome)
