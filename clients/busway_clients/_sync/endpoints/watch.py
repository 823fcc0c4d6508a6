# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""A watch on the source of an endpoint: it keeps the last good answer, and calls back on changes."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from busway_clients.concurrency.threads import Event, Lock, SideTask, is_set_within
from busway_clients.endpoints.cache import EndpointCache, EndpointChange, EndpointState
from busway_clients.endpoints.endpoint import Answer, Endpoint, EndpointUnresolved, Source
from busway_clients.endpoints.limited_call import LimitedCall

_LOGGER = logging.getLogger("busway_clients.endpoints")

_MIN_REFRESH_SECONDS = 1.0
"""How long one refresh serves all callers: during an outage every sender of an application requests one."""

_READ_SECONDS = 60.0
"""How long any source may take; those of this package have shorter limits, one of the application may have none."""

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
        self._reading = LimitedCall(partial(_read_source, source), _READ_SECONDS)
        self._on_change = on_change
        self._on_error = on_error
        self._cache = EndpointCache() if cache is None else cache
        self._monotonic = monotonic
        self._lock = Lock()
        self._read_at: float | None = None
        self._events: deque[tuple[Callable[..., None] | None, object]] = deque()
        self._calling_back = threading.Lock()
        self._starting = threading.Lock()
        self._refreshing: SideTask[None] | None = None
        self._refreshed = Event()
        self._refreshed.set()
        self._background: SideTask[None] | None = None
        self._ended = Event()

    @property
    def state(self) -> EndpointState:
        """The endpoints, and the error of the last attempt to read them."""
        return self._cache.state(self._monotonic())

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        if self._due_in() <= 0:
            if not self._cache.endpoints:
                self._refresh(self._is_due)
            elif not self._lock.locked():
                self._refresh_beside(_DUE_SECONDS)
        return self._known()

    def consult(self) -> tuple[Endpoint, ...]:
        """Read the source now and wait two seconds for it, unless it was read within the last second."""
        if self._cache.endpoints:
            self._refresh_beside(_CONSULT_SECONDS)
        else:
            self._refresh(self._is_not_recent)
        return self._known()

    def __enter__(self) -> Self:
        """Start to read the source in the background."""
        # Its own event: what an earlier context started may still wait for its source.
        self._ended = Event()
        self._background = SideTask(partial(self._run, self._ended), "busway-endpoints")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop reading in the background, and wait a second for a query that has begun."""
        self._ended.set()
        for task in (self._background, self._refreshing):
            if task is not None and not task.wait(_EXIT_SECONDS):
                task.abandon()

    def _run(self, ended: Event) -> None:
        while not is_set_within(ended, self._due_in()):
            self._refresh(self._is_due)

    def _due_in(self) -> float:
        return self._cache.due_in(self._monotonic())

    def _is_due(self) -> bool:
        return self._due_in() <= 0

    def _is_not_recent(self) -> bool:
        return self._read_at is None or self._monotonic() - self._read_at >= _MIN_REFRESH_SECONDS

    def _refresh_beside(self, seconds: float) -> None:
        with self._starting:
            if self._refreshed.is_set():
                refreshed = Event()
                act = partial(self._refresh, self._is_not_recent, refreshed)
                try:
                    self._refreshing = SideTask(act, "busway-endpoints-refresh")
                except RuntimeError as error:
                    # The process has too many threads, or ends: the known endpoints are still good.
                    _LOGGER.warning("the endpoint source is not read now: %s", error)
                    return
                self._refreshed = refreshed
            refreshed = self._refreshed
        is_set_within(refreshed, seconds)

    def _refresh(self, must_read: Callable[[], bool], refreshed: Event | None = None) -> None:
        """Read the source if it must still be read once earlier reads have ended, and call back."""
        try:
            with self._lock:
                if must_read():
                    self._read()
        finally:
            # Nobody waits for callbacks, which may use the watch themselves.
            if refreshed is not None:
                refreshed.set()
        self._call_back()

    def _read(self) -> None:
        self._read_at = self._monotonic()
        try:
            answer = self._reading.result()
            change = self._cache.update(answer, self._monotonic())
        except (TimeoutError, RuntimeError) as error:
            # RuntimeError: the process cannot start another thread.
            self._note_failure(EndpointUnresolved(f"the source cannot be read: {error}"))
        except EndpointUnresolved as error:
            self._note_failure(error)
        else:
            if change is not None:
                _log_change(change)
                self._events.append((self._on_change, change))

    def _known(self) -> tuple[Endpoint, ...]:
        if not self._cache.endpoints:
            raise self._cache.error or EndpointUnresolved("the source has not been read yet")
        return self._cache.endpoints

    def _note_failure(self, error: EndpointUnresolved) -> None:
        """Keep the error in the state, and log it if it is not the same as before."""
        is_new = str(self._cache.error) != str(error)
        self._cache.failed(error, self._monotonic())
        if is_new:
            kept = ", ".join(map(str, self._cache.endpoints)) or "none"
            _LOGGER.error("the endpoint source cannot be read, endpoints in use: %s: %s", kept, error)
        self._events.append((self._on_error, error))

    def _call_back(self) -> None:
        """Call the callbacks for new events in order; no thread waits for callbacks that another thread calls."""
        while self._events and self._calling_back.acquire(blocking=False):
            try:
                while self._events:
                    _call(*self._events.popleft())
            finally:
                self._calling_back.release()


def _read_source(source: Source) -> Answer:
    try:
        return source.read()
    except EndpointUnresolved:
        raise
    except Exception as error:  # the application may pass any source; the watch keeps its endpoints
        raise EndpointUnresolved(f"{type(source).__name__} failed, {type(error).__name__}: {error}") from error


def _log_change(change: EndpointChange) -> None:
    # The first endpoint is not a change that an operator must look at.
    level = logging.WARNING if change.before else logging.INFO
    before = ", ".join(map(str, change.before)) or "none"
    after = ", ".join(map(str, change.after))
    _LOGGER.log(level, "the endpoint changed from %s to %s (%s)", before, after, change.site)


def _call(callback: Callable[..., None] | None, event: object) -> None:
    if callback is None:
        return
    try:
        callback(event)
    except Exception:
        _LOGGER.exception("a callback of the endpoint watch failed")
