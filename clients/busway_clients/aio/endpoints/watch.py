"""A watch on the source of an endpoint: it keeps the last good answer, and calls back on changes."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, Self

from busway_clients.concurrency.tasks import Event, SideTask, end_of, is_set_within
from busway_clients.endpoints.cache import EndpointCache, EndpointChange, EndpointState
from busway_clients.endpoints.endpoint import Endpoint, EndpointUnresolved, Source
from busway_clients.endpoints.limited_call import LimitedCall

_LOGGER = logging.getLogger("busway_clients.endpoints")

_READ_SECONDS = 60.0
"""How long any source may take; those of this package have shorter limits, one of the application may have none."""

_MIN_REFRESH_SECONDS = 1.0
"""How long one read serves all callers: during an outage every sender of an application requests one."""

_DUE_SECONDS = 0.05
"""How long a caller with an endpoint waits for a source that is due: for a file, hardly ever for a name server."""

_CONSULT_SECONDS = 2.0
"""How long a caller waits whose namespace has just failed; then it continues with the known endpoint."""

_EXIT_SECONDS = 1.0
"""How long leaving the context waits for a query that has begun."""


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
        self._source = source
        self._on_change = on_change
        self._on_error = on_error
        self._cache = EndpointCache() if cache is None else cache
        self._monotonic = monotonic
        # One read at a time, in a thread, for which no caller has to wait.
        self._reading = LimitedCall(self._read_source, _READ_SECONDS)
        self._read_at: float | None = None
        self._began = 0.0
        # One event for all callers of a read, since a source may hang for days.
        self._awaited: object = None
        self._is_read = Event()
        self._events: deque[tuple[Callable[..., None] | None, object]] = deque()
        self._calling_back = threading.Lock()
        self._background: SideTask[None] | None = None
        self._ended = Event()

    @property
    def state(self) -> EndpointState:
        """The endpoints, and the error of the last attempt to read them."""
        return self._cache.state(self._monotonic())

    async def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        if self._is_due() and not (self._reading.is_running and self._cache.endpoints):
            await self._read(self._is_due, _DUE_SECONDS)
        return self._known()

    async def consult(self) -> tuple[Endpoint, ...]:
        """Read the source now and wait two seconds for it, unless it was read within the last second."""
        await self._read(self._is_not_recent, _CONSULT_SECONDS)
        return self._known()

    async def __aenter__(self) -> Self:
        """Start to read the source in the background."""
        # Its own event: what an earlier context started may still wait for its source.
        self._ended = Event()
        self._background = SideTask(partial(self._run, self._ended), "busway-endpoints")
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop reading in the background, and wait a second for a query that has begun."""
        self._ended.set()
        if self._background is not None and not await self._background.wait(_EXIT_SECONDS):
            await self._background.abandon()

    async def _run(self, ended: Event) -> None:
        while not await is_set_within(ended, self._cache.due_in(self._monotonic())):
            await self._read(self._is_due, _READ_SECONDS)

    def _is_due(self) -> bool:
        return self._cache.due_in(self._monotonic()) <= 0

    def _is_not_recent(self) -> bool:
        return self._read_at is None or self._monotonic() - self._read_at >= _MIN_REFRESH_SECONDS

    def _known(self) -> tuple[Endpoint, ...]:
        if not self._cache.endpoints:
            raise self._cache.error or EndpointUnresolved("the source has not been read yet")
        return self._cache.endpoints

    async def _read(self, is_needed: Callable[[], bool], seconds: float) -> None:
        """Read the source if *is_needed*, and call back; a caller waits longer while no endpoint is known."""
        reading = None
        try:
            reading = self._reading.start(is_needed)
        except RuntimeError as error:
            # The process has too many threads, or ends: the known endpoints are still good.
            self._note_failure(EndpointUnresolved(f"the source cannot be read: {error}"))
        if self._reading.is_running and time.monotonic() - self._began >= _READ_SECONDS:
            self._began = time.monotonic()
            text = f"the source cannot be read: no answer within {_READ_SECONDS:g} s"
            self._note_failure(EndpointUnresolved(text))
        if reading is not None:
            if reading is not self._awaited:
                self._is_read, self._awaited = end_of(reading.future), reading
            await is_set_within(self._is_read, seconds if self._cache.endpoints else _READ_SECONDS)
        self._call_back()

    def _read_source(self) -> None:
        self._read_at, self._began = self._monotonic(), time.monotonic()
        try:
            change = self._cache.update(self._source.read(), self._monotonic())
        except EndpointUnresolved as error:
            self._note_failure(error)
        except Exception as error:  # noqa: BLE001 - the application may pass any source; the watch keeps its endpoints
            failure = EndpointUnresolved(f"{type(self._source).__name__} failed, {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._note_failure(failure)
        else:
            if change is not None:
                self._note_change(change)

    def _note_change(self, change: EndpointChange) -> None:
        # The first endpoint is not a change that an operator must look at.
        level = logging.WARNING if change.before else logging.INFO
        _LOGGER.log(
            level, "the endpoint changed from %s to %s (%s)", _named(change.before), _named(change.after), change.site
        )
        self._events.append((self._on_change, change))

    def _note_failure(self, error: EndpointUnresolved) -> None:
        """Keep the error in the state, and log it if it is not the same as before."""
        is_new = str(self._cache.error) != str(error)
        self._cache.failed(error, self._monotonic())
        if is_new:
            kept = _named(self._cache.endpoints)
            _LOGGER.error("the endpoint source cannot be read, endpoints in use: %s: %s", kept, error)
        self._events.append((self._on_error, error))

    def _call_back(self) -> None:
        """Call the callbacks for new events in order; no caller waits for callbacks that another one calls."""
        while self._events and self._calling_back.acquire(blocking=False):
            try:
                while self._events:
                    callback, event = self._events.popleft()
                    if callback is not None:
                        callback(event)
            except Exception:
                _LOGGER.exception("a callback of the endpoint watch failed")
            finally:
                self._calling_back.release()


def _named(endpoints: tuple[Endpoint, ...]) -> str:
    return ", ".join(map(str, endpoints)) or "none"
