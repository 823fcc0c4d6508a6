"""Reads the source of a watch in a thread, for synchronous and asynchronous callers."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from busway_clients.endpoints.cache import EndpointCache, EndpointChange
from busway_clients.endpoints.endpoint import Answer, Endpoint, EndpointUnresolved, Source
from busway_clients.endpoints.limited_call import LimitedCall

_LOGGER = logging.getLogger("busway_clients.endpoints")

READ_SECONDS = 60.0
"""How long any source may take; those of this package have shorter limits, one of the application may have none."""

_MIN_REFRESH_SECONDS = 1.0
"""How long one read serves all callers: during an outage every sender of an application requests one."""


class SourceReader(LimitedCall[None]):
    """The answers of a source: one read at a time, which no caller has to wait for, and the callbacks that are due."""

    def __init__(
        self,
        source: Source,
        on_change: Callable[[EndpointChange], None] | None,
        on_error: Callable[[EndpointUnresolved], None] | None,
        cache: EndpointCache,
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(self._read, READ_SECONDS)
        self.cache = cache
        self._source = source
        self._on_change = on_change
        self._on_error = on_error
        self._monotonic = monotonic
        self._read_at: float | None = None
        self._began = 0.0
        self._events: deque[tuple[Callable[..., None] | None, object]] = deque()
        self._calling_back = threading.Lock()

    def due_in(self) -> float:
        """Return in how many seconds the source must be read again."""
        return self.cache.due_in(self._monotonic())

    def is_due(self) -> bool:
        """Return whether the source must be read now."""
        return self.due_in() <= 0

    def is_not_recent(self) -> bool:
        """Return whether the last read is so old that another may find something else."""
        return self._read_at is None or self._monotonic() - self._read_at >= _MIN_REFRESH_SECONDS

    def reading(self, is_needed: Callable[[], bool]) -> Future[None] | None:
        """Return the running read, or begin one; None if none runs and none *is_needed*."""
        try:
            reading = self.start(is_needed)
        except RuntimeError as error:
            # The process has too many threads, or ends: the known endpoints are still good.
            self._note_failure(EndpointUnresolved(f"the source cannot be read: {error}"))
            return None
        if self.is_running and time.monotonic() - self._began >= READ_SECONDS:
            self._began = time.monotonic()
            self._note_failure(EndpointUnresolved(f"the source cannot be read: no answer within {READ_SECONDS:g} s"))
        return None if reading is None else reading.future

    def known(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved if there never was a good answer."""
        if not self.cache.endpoints:
            raise self.cache.error or EndpointUnresolved("the source has not been read yet")
        return self.cache.endpoints

    def call_back(self) -> None:
        """Call the callbacks for new events in order; no thread waits for callbacks that another thread calls."""
        while self._events and self._calling_back.acquire(blocking=False):
            try:
                while self._events:
                    _call(*self._events.popleft())
            finally:
                self._calling_back.release()

    def _read(self) -> None:
        self._read_at, self._began = self._monotonic(), time.monotonic()
        try:
            change = self.cache.update(self._answer(), self._monotonic())
        except EndpointUnresolved as error:
            self._note_failure(error)
            return
        if change is not None:
            # The first endpoint is not a change that an operator must look at.
            level = logging.WARNING if change.before else logging.INFO
            before = ", ".join(map(str, change.before)) or "none"
            after = ", ".join(map(str, change.after))
            _LOGGER.log(level, "the endpoint changed from %s to %s (%s)", before, after, change.site)
            self._events.append((self._on_change, change))

    def _answer(self) -> Answer:
        try:
            return self._source.read()
        except EndpointUnresolved:
            raise
        except Exception as error:  # the application may pass any source; the watch keeps its endpoints
            text = f"{type(self._source).__name__} failed, {type(error).__name__}: {error}"
            raise EndpointUnresolved(text) from error

    def _note_failure(self, error: EndpointUnresolved) -> None:
        """Keep the error in the state, and log it if it is not the same as before."""
        is_new = str(self.cache.error) != str(error)
        self.cache.failed(error, self._monotonic())
        if is_new:
            kept = ", ".join(map(str, self.cache.endpoints)) or "none"
            _LOGGER.error("the endpoint source cannot be read, endpoints in use: %s: %s", kept, error)
        self._events.append((self._on_error, error))


def _call(callback: Callable[..., None] | None, event: object) -> None:
    if callback is None:
        return
    try:
        callback(event)
    except Exception:
        _LOGGER.exception("a callback of the endpoint watch failed")
