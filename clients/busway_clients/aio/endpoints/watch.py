"""The endpoint watch for asyncio; it reads sources in a thread, since files and name servers may be slow."""

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

    As a context manager it reads the source in a background task, so that `on_change` is called promptly and no caller
    waits; otherwise `endpoints` reads the source when it is due. The callbacks are plain functions.
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
        self._watching = Watching(source, on_change, on_error, cache, monotonic=monotonic, lock=asyncio.Lock())
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> EndpointState:
        """The endpoints, and the error of the last attempt to read them."""
        return self._watching.state

    async def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        return await run_async(self._watching.endpoints())

    async def consult(self) -> tuple[Endpoint, ...]:
        """Read the source now, unless it was read within the last second; otherwise like `endpoints`."""
        return await run_async(self._watching.consult())

    async def __aenter__(self) -> Self:
        """Start the background task."""
        self._task = asyncio.create_task(self._run(), name="busway-endpoints")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the background task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._watching.due_in())
            await run_async(self._watching.refresh_if_due())
