"""The steps of an endpoint watch: when to read the source again, and which callbacks to call."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from busway_clients.endpoints.cache import EndpointCache, EndpointChange, EndpointState
from busway_clients.endpoints.endpoint import Answer, Endpoint, EndpointUnresolved, Source
from busway_clients.endpoints.limited_call import LimitedCall
from busway_clients.steps import Call, Lock, Steps, holding

LOGGER = logging.getLogger("busway_clients.endpoints")

_MIN_REFRESH_SECONDS = 1.0
"""How long one refresh serves all callers: during an outage every sender of an application requests one."""

_READ_SECONDS = 60.0
"""How long any source may take; those of this package have shorter limits, one of the application may have none."""

_DUE_SECONDS = 0.05
"""How long a caller with an endpoint waits for a source that is due: for a file, hardly ever for a name server."""

_CONSULT_SECONDS = 2.0
"""How long a caller waits whose namespace has just failed; then it continues with the known endpoint."""


class Watching:
    """The logic of both watches; a source is read in a thread, since it may be slow."""

    def __init__(
        self,
        source: Source,
        on_change: Callable[[EndpointChange], None] | None,
        on_error: Callable[[EndpointUnresolved], None] | None,
        cache: EndpointCache | None,
        *,
        monotonic: Callable[[], float],
        lock: Lock,
        refresh_beside: Callable[[float], Any],
    ) -> None:
        """Let *refresh_beside* start `refresh` beside the caller and wait for it, at most the seconds that it gets."""
        self._reading = LimitedCall(partial(_read_source, source), _READ_SECONDS)
        self._on_change = on_change
        self._on_error = on_error
        self._cache = EndpointCache() if cache is None else cache
        self._monotonic = monotonic
        self._lock = lock
        self._refresh_beside = refresh_beside
        self._read_at: float | None = None
        self._events: deque[tuple[Callable[..., None] | None, object]] = deque()
        self._calling_back = threading.Lock()

    @property
    def state(self) -> EndpointState:
        """The endpoints, and the error of the last attempt to read them."""
        return self._cache.state(self._monotonic())

    def due_in(self) -> float:
        """Return in how many seconds the source must be read again."""
        return self._cache.due_in(self._monotonic())

    def endpoints(self) -> Steps[tuple[Endpoint, ...]]:
        """Return the endpoints to try in turn; wait for the source only while none is known."""
        if self.due_in() <= 0:
            if not self._cache.endpoints:
                yield from self.refresh_if_due()
            elif not self._lock.locked():
                yield Call(lambda: self._refresh_beside(_DUE_SECONDS))
        return self._known()

    def consult(self) -> Steps[tuple[Endpoint, ...]]:
        """Read the source now, unless it was read within the last second, and return the endpoints."""
        if self._cache.endpoints:
            yield Call(lambda: self._refresh_beside(_CONSULT_SECONDS))
        else:
            yield from self.refresh()
            self.call_back()
        return self._known()

    def refresh_if_due(self) -> Steps[None]:
        """Read the source if it is due and no other caller has just read it."""
        yield from holding(self._lock, self._read_if_due())
        self.call_back()

    def refresh(self) -> Steps[None]:
        """Read the source unless it was read within the last second; `call_back` must follow."""
        yield from holding(self._lock, self._read_unless_recent())

    def _read_if_due(self) -> Steps[None]:
        if self.due_in() <= 0:
            yield from self._read()

    def _read_unless_recent(self) -> Steps[None]:
        if self._read_at is None or self._monotonic() - self._read_at >= _MIN_REFRESH_SECONDS:
            yield from self._read()

    def _read(self) -> Steps[None]:
        self._read_at = self._monotonic()
        try:
            answer = yield Call(self._reading.result, self._reading.result_async)
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
            LOGGER.error("the endpoint source cannot be read, endpoints in use: %s: %s", kept, error)
        self._events.append((self._on_error, error))

    def call_back(self) -> None:
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
    LOGGER.log(level, "the endpoint changed from %s to %s (%s)", before, after, change.site)


def _call(callback: Callable[..., None] | None, event: object) -> None:
    if callback is None:
        return
    try:
        callback(event)
    except Exception:
        LOGGER.exception("a callback of the endpoint watch failed")
