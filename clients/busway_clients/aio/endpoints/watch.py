"""The endpoint watch for asyncio."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from busway_clients.endpoints.cache import EndpointCache, EndpointChange, EndpointState
from busway_clients.endpoints.endpoint import Endpoint, EndpointUnresolved, Source
from busway_clients.endpoints.watching import Watching
from busway_clients.steps import run_async


class Watched(Protocol):
    """The part of a watch that senders and receivers use."""

    async def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        ...

    async def consult(self) -> tuple[Endpoint, ...]:
        """Read the source now, even if the last answer is still valid; otherwise like `endpoints`."""
        ...


class EndpointWatch:
    """
    The endpoints of a source: an answer is cached while it is valid, and kept if the source fails.

    A caller waits for the source only while no endpoint is known. As a context manager the watch reads the source in a
    background task whenever it is due, and `on_change` is called promptly; otherwise a call of `endpoints` starts the
    read when it is due, and the calls after it get the answer. The callbacks are plain functions.
    """

    def __init__(
        self,
        source: Source,
        *,
        on_change: Callable[[EndpointChange], None] | None = None,
        on_error: Callable[[EndpointUnresolved], None] | None = None,
        cache: EndpointCache | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch *source*; exceptions of the callbacks are logged."""
        self._watching = Watching(
            source,
            on_change,
            on_error,
            cache,
            monotonic=monotonic,
            lock=asyncio.Lock(),
            refresh_beside=self._refresh_beside,
        )
        self._task: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def state(self) -> EndpointState:
        """The endpoints, and the error of the last attempt to read them."""
        return self._watching.state

    async def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        return await run_async(self._watching.endpoints())

    async def consult(self) -> tuple[Endpoint, ...]:
        """Read the source now and wait two seconds for it, unless it was read within the last second."""
        return await run_async(self._watching.consult())

    async def __aenter__(self) -> Self:
        """Start the background task."""
        self._task = asyncio.create_task(self._run(), name="busway-endpoints")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the background tasks."""
        tasks = [task for task in (self._task, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh_beside(self, seconds: float) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="busway-endpoints-refresh")
        await asyncio.wait({self._refreshing}, timeout=seconds)

    async def _refresh(self) -> None:
        await run_async(self._watching.refresh())
        self._watching.call_back()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._watching.due_in())
            await run_async(self._watching.refresh_if_due())
