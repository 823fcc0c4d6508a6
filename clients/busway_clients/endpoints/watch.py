"""A source that is asked again when its answer has become old, and the callbacks for what changes."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from busway_clients.endpoints.cache import EndpointCache, EndpointChange, EndpointState
from busway_clients.endpoints.endpoint import Answer, Endpoint, EndpointUnresolved, Source

LOGGER = logging.getLogger("busway_clients.endpoints")

LEAST_PAUSE_SECONDS = 1.0
"""How long one consultation serves all who ask for one: in an outage every sender of an application does."""


class Watched(Protocol):
    """What senders and receivers need of a watch."""

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        ...

    def consult(self) -> tuple[Endpoint, ...]:
        """Ask the source now, whatever is known; otherwise as `endpoints`."""
        ...


class EndpointWatch:
    """
    The endpoints of a source: cached for as long as its answer may be, and kept on any fault.

    May be called from any thread. Within its context a thread of its own asks the source when it is due, so that
    `on_change` is called when something changes and nobody has to wait; without, `endpoints` asks when it must.
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
        """Watch *source*; the callbacks come one at a time and may use the watch, and what they raise is logged."""
        self._source = source
        self._on_change = on_change
        self._on_error = on_error
        self._cache = EndpointCache() if cache is None else cache
        self._monotonic = monotonic
        self._consulting = threading.Lock()
        self._consulted: float | None = None
        self._news: deque[tuple[Callable[..., None] | None, object]] = deque()
        self._telling = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def state(self) -> EndpointState:
        """What is known, and what was wrong when it was last asked for."""
        return self._cache.state(self._monotonic())

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn; raises EndpointUnresolved only if there never was a good answer."""
        if self._cache.due_in(self._monotonic()) > 0 or (self._cache.endpoints and self._consulting.locked()):
            return known_endpoints(self._cache)
        with self._consulting:
            # Another thread may have asked while this one waited.
            if self._cache.due_in(self._monotonic()) <= 0:
                self._ask()
        self._tell()
        return known_endpoints(self._cache)

    def consult(self) -> tuple[Endpoint, ...]:
        """Ask the source now, unless somebody has a second ago; otherwise as `endpoints`."""
        with self._consulting:
            asked = self._consulted
            if asked is None or self._monotonic() - asked >= LEAST_PAUSE_SECONDS:
                self._ask()
        self._tell()
        return known_endpoints(self._cache)

    def __enter__(self) -> Self:
        """Start to ask in the background."""
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, name="busway-endpoints", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop to ask; a query that is on its way is waited for."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._cache.due_in(self._monotonic())):
            with self._consulting:
                if self._cache.due_in(self._monotonic()) <= 0:
                    self._ask()
            self._tell()

    def _ask(self) -> None:
        self._consulted = self._monotonic()
        try:
            answer = read(self._source)
            change = self._cache.learned(answer, self._monotonic())
        except EndpointUnresolved as error:
            note_failure(self._cache, error, self._monotonic())
            self._news.append((self._on_error, error))
        else:
            if change is not None:
                log_change(change)
                self._news.append((self._on_change, change))

    def _tell(self) -> None:
        """Call the callbacks for what is new, in its order; nobody waits for those that another thread calls."""
        while self._news and self._telling.acquire(blocking=False):
            try:
                while self._news:
                    tell(*self._news.popleft())
            finally:
                self._telling.release()


def read(source: Source) -> Answer:
    """Return what *source* says; whatever it raises is an EndpointUnresolved."""
    try:
        return source.read()
    except EndpointUnresolved:
        raise
    except Exception as error:  # whatever is wrong with a source, the endpoint from before is kept
        raise EndpointUnresolved(f"{type(source).__name__} failed, {type(error).__name__}: {error}") from error


def known_endpoints(cache: EndpointCache) -> tuple[Endpoint, ...]:
    """Return the endpoints of *cache*; raises EndpointUnresolved if there are none."""
    if not cache.endpoints:
        raise cache.error or EndpointUnresolved("the source has not been asked yet")
    return cache.endpoints


def note_failure(cache: EndpointCache, error: EndpointUnresolved, now: float) -> None:
    """Log *error* once for each time that it changes, and keep it in the state."""
    is_new = str(cache.error) != str(error)
    cache.failed(error, now)
    if is_new:
        kept = ", ".join(map(str, cache.endpoints)) or "none"
        LOGGER.error("The endpoint cannot be read: %s; kept: %s.", error, kept)


def log_change(change: EndpointChange) -> None:
    """Log what is in use now; the first one is no news to anybody but a reader of all that happens."""
    level = logging.WARNING if change.before else logging.INFO
    before = ", ".join(map(str, change.before)) or "none"
    after = ", ".join(map(str, change.after))
    LOGGER.log(level, "The endpoint is now %s (%s), it was %s.", after, change.site, before)


def tell(callback: Callable[..., None] | None, what: object) -> None:
    """Call *callback* if there is one."""
    if callback is None:
        return
    try:
        callback(what)
    except Exception:
        LOGGER.exception("A callback of the endpoint watch failed.")
