"""A watch on the source of an endpoint: it keeps the last good answer, and calls back on changes."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from busway_clients.endpoints.cache import EndpointCache, EndpointChange, EndpointState
from busway_clients.endpoints.endpoint import Endpoint, EndpointUnresolved, Source
from busway_clients.endpoints.watching import LOGGER, Watching
from busway_clients.steps import run

_EXIT_SECONDS = 1.0


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

    Safe to call from any thread. A caller waits for the source only while no endpoint is known. As a context manager
    the watch reads the source in a background thread whenever it is due, and `on_change` is called promptly; otherwise
    a call of `endpoints` starts the read when it is due, and the calls after it get the answer.
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
        self._watching = Watching(
            source,
            on_change,
            on_error,
            cache,
            monotonic=monotonic,
            lock=threading.Lock(),
            refresh_beside=self._refresh_beside,
        )
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._refreshed: threading.Event | None = None

    @property
    def state(self) -> EndpointState:
        """The endpoints, and the error of the last attempt to read them."""
        return self._watching.state

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        return run(self._watching.endpoints())

    def consult(self) -> tuple[Endpoint, ...]:
        """Read the source now and wait two seconds for it, unless it was read within the last second."""
        return run(self._watching.consult())

    def __enter__(self) -> Self:
        """Start the background thread."""
        # Its own event: the thread of an earlier context may still wait for its source.
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._ended,), name="busway-endpoints", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the background thread, and wait a second for a query that it has begun."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_EXIT_SECONDS)

    def _refresh_beside(self, seconds: float) -> None:
        with self._starting:
            if self._refreshed is None or self._refreshed.is_set():
                refreshed = threading.Event()
                try:
                    threading.Thread(
                        target=self._refresh, args=(refreshed,), name="busway-endpoints-refresh", daemon=True
                    ).start()
                except RuntimeError as error:
                    # The process has too many threads, or ends: the known endpoints are still good.
                    LOGGER.warning("the endpoint source is not read now: %s", error)
                    return
                self._refreshed = refreshed
            refreshed = self._refreshed
        refreshed.wait(seconds)

    def _refresh(self, refreshed: threading.Event) -> None:
        try:
            run(self._watching.refresh())
        finally:
            refreshed.set()
        # Nobody waits for callbacks, which may use the watch themselves.
        self._watching.call_back()

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(self._watching.due_in()):
            run(self._watching.refresh_if_due())
