"""The watch for asyncio: sources are read in a thread, since files and name servers may be slow."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from busway_clients.endpoints.cache import EndpointCache, EndpointChange, EndpointState
from busway_clients.endpoints.endpoint import Endpoint, EndpointUnresolved, Source
from busway_clients.endpoints.watch import (
    LEAST_PAUSE_SECONDS,
    known_endpoints,
    log_change,
    note_failure,
    read,
    tell,
)


class Watched(Protocol):
    """What senders and receivers need of a watch."""

    async def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        ...

    async def consult(self) -> tuple[Endpoint, ...]:
        """Ask the source now, whatever is known; otherwise as `endpoints`."""
        ...


class EndpointWatch:
    """
    The endpoints of a source: cached for as long as its answer may be, and kept on any fault.

    Within its context a task asks the source when it is due, so that `on_change` is called when something changes and
    nobody who asks has to wait; without, `endpoints` asks when it must. The callbacks are plain functions.
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
        """Watch *source*; what the callbacks raise is logged."""
        self._source = source
        self._on_change = on_change
        self._on_error = on_error
        self._cache = EndpointCache() if cache is None else cache
        self._monotonic = monotonic
        self._consulting = asyncio.Lock()
        self._consulted: float | None = None
        self._asking: asyncio.Task[None] | None = None

    @property
    def state(self) -> EndpointState:
        """What is known, and what was wrong when it was last asked for."""
        return self._cache.state(self._monotonic())

    async def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        if self._cache.due_in(self._monotonic()) > 0 or (self._cache.endpoints and self._consulting.locked()):
            return known_endpoints(self._cache)
        await self._ask_if_due()
        return known_endpoints(self._cache)

    async def consult(self) -> tuple[Endpoint, ...]:
        """Ask the source now, unless somebody has a second ago; otherwise as `endpoints`."""
        async with self._consulting:
            asked = self._consulted
            if asked is None or self._monotonic() - asked >= LEAST_PAUSE_SECONDS:
                await self._ask()
        return known_endpoints(self._cache)

    async def __aenter__(self) -> Self:
        """Start to ask in the background."""
        self._asking = asyncio.create_task(self._run(), name="busway-endpoints")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop to ask."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._cache.due_in(self._monotonic()))
            await self._ask_if_due()

    async def _ask_if_due(self) -> None:
        async with self._consulting:
            # Somebody else may have asked while this one waited.
            if self._cache.due_in(self._monotonic()) <= 0:
                await self._ask()

    async def _ask(self) -> None:
        self._consulted = self._monotonic()
        try:
            answer = await asyncio.to_thread(read, self._source)
            change = self._cache.learned(answer, self._monotonic())
        except EndpointUnresolved as error:
            note_failure(self._cache, error, self._monotonic())
            tell(self._on_error, error)
        else:
            if change is not None:
                log_change(change)
                tell(self._on_change, change)
