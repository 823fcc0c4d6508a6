# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""A watch on the source of an endpoint: it keeps the last good answer, and calls back on changes."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol, Self

from busway_clients.concurrency.threads import Event, SideTask, end_of, is_set_within
from busway_clients.endpoints.cache import EndpointCache, EndpointChange, EndpointState
from busway_clients.endpoints.endpoint import Endpoint, EndpointUnresolved, Source
from busway_clients.endpoints.source_reader import READ_SECONDS, SourceReader

_DUE_SECONDS = 0.05
"""How long a caller with an endpoint waits for a source that is due: for a file, hardly ever for a name server."""

_CONSULT_SECONDS = 2.0
"""How long a caller waits whose namespace has just failed; then it continues with the known endpoint."""

_EXIT_SECONDS = 1.0
"""How long leaving the context waits for a query that has begun."""


class Watched(Protocol):
    """The part of a watch that senders and receivers use."""

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        ...

    def consult(self) -> tuple[Endpoint, ...]:
        """Read the source now, even if the last answer is still valid; otherwise like `endpoints`."""
        ...


class EndpointWatch:
    """
    The endpoints of a source: an answer is cached while it is valid, and kept if the source fails.

    Safe to use concurrently. A caller waits for the source only while no endpoint is known. As a context manager the
    watch reads the source in the background whenever it is due, and `on_change` is called promptly; otherwise a call of
    `endpoints` starts the read when it is due, and the calls after it get the answer. The source and the callbacks are
    plain functions; a source is read in a thread, since it may be slow.
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
        """Watch *source*. Callbacks run one at a time and may use the watch; their exceptions are logged."""
        self._cache = EndpointCache() if cache is None else cache
        self._monotonic = monotonic
        self._reader = SourceReader(source, on_change, on_error, self._cache, monotonic)
        self._reading: Future[None] | None = None
        self._read = Event()
        self._background: SideTask[None] | None = None
        self._ended = Event()

    @property
    def state(self) -> EndpointState:
        """The endpoints, and the error of the last attempt to read them."""
        return self._cache.state(self._monotonic())

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        if self._reader.is_due() and not (self._reader.is_running and self._cache.endpoints):
            self._wait(self._reader.reading(self._reader.is_due), _DUE_SECONDS)
        return self._reader.known()

    def consult(self) -> tuple[Endpoint, ...]:
        """Read the source now and wait two seconds for it, unless it was read within the last second."""
        self._wait(self._reader.reading(self._reader.is_not_recent), _CONSULT_SECONDS)
        return self._reader.known()

    def __enter__(self) -> Self:
        """Start to read the source in the background."""
        # Its own event: what an earlier context started may still wait for its source.
        self._ended = Event()
        self._background = SideTask(partial(self._run, self._ended), "busway-endpoints")
        return self

    def __exit__(self, *error: object) -> None:
        """Stop reading in the background, and wait a second for a query that has begun."""
        self._ended.set()
        if self._background is not None and not self._background.wait(_EXIT_SECONDS):
            self._background.abandon()

    def _run(self, ended: Event) -> None:
        while not is_set_within(ended, self._reader.due_in()):
            self._wait(self._reader.reading(self._reader.is_due), READ_SECONDS)

    def _wait(self, reading: Future[None] | None, seconds: float) -> None:
        """Wait for a read, longer while no endpoint is known, and call back."""
        if reading is not None:
            # One event for all callers, since a source may hang for days.
            if reading is not self._reading:
                self._read, self._reading = end_of(reading), reading
            is_set_within(self._read, seconds if self._cache.endpoints else READ_SECONDS)
        self._reader.call_back()
