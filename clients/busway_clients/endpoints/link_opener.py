"""
Opens links in threads.

The synchronous SDK waits without limit for a peer that accepts a connection and does not answer. Here the caller waits
for a limited time. An endpoint has at most one thread, however often it is tried.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, TypeVar

from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import Link

BESIDE_SECONDS = 1.0
"""How long a caller with a working link waits for the next one before it continues with its own."""

Opened = TypeVar("Opened")


class StillOpening(Exception):
    """A link is not open yet, and its timeout has not passed."""


def open_link(
    connect: Callable[[Endpoint], AbstractContextManager[Any]],
    open_client: Callable[[Any], AbstractContextManager[Any]],
    endpoint: Endpoint,
) -> Link:
    """Open an SDK client of *endpoint*, and its sender or receiver."""
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(connect(endpoint))
        sdk = stack.enter_context(open_client(client))
        return Link(endpoint, sdk, stack.pop_all().close)


def close_link(link: Link) -> None:
    """Close a link and its client."""
    link.close()


class LinkOpener(Generic[Opened]):
    """The links that one client opens, one call at a time."""

    def __init__(
        self,
        open_link: Callable[[Endpoint], Opened],
        close: Callable[[Opened], None],
        open_seconds: float,
        beside_seconds: float = BESIDE_SECONDS,
    ) -> None:
        """Open with *open_link* within *open_seconds*; *close* is called for links that are no longer needed."""
        self._open_link = open_link
        self._close = close
        self._open_seconds = open_seconds
        self._beside_seconds = beside_seconds
        self._pending: dict[Endpoint, _Opening[Opened]] = {}

    def open(self, endpoint: Endpoint, *, beside: bool) -> Opened:
        """
        Return a link to *endpoint* within open_seconds, or *beside_seconds* if the caller has another link.

        Raises what opening raises; StillOpening if it is not open yet *beside* the other link; TimeoutError after
        open_seconds, and then immediately until the thread ends.
        """
        opening = self._pending.get(endpoint)
        if opening is None or (opening.is_abandoned and opening.is_done(0)):
            opening = _Opening(partial(self._open_link, endpoint), self._close)
            self._pending[endpoint] = opening
        if not opening.is_abandoned:
            seconds = min(self._beside_seconds, self._open_seconds) if beside else self._open_seconds
            if opening.is_done(opening.began + seconds - time.monotonic()):
                del self._pending[endpoint]
                return opening.result()
            if beside and time.monotonic() < opening.began + self._open_seconds:
                raise StillOpening
            opening.abandon()
        raise TimeoutError(f"no link could be opened within {self._open_seconds:g} s")

    def abandon(self) -> None:
        """Abandon the links that are still opening."""
        for opening in self._pending.values():
            opening.abandon()


class _Opening(Generic[Opened]):
    def __init__(self, open_link: Callable[[], Opened], close: Callable[[Opened], None]) -> None:
        self.began = time.monotonic()
        self.is_abandoned = False
        self._open_link = open_link
        self._close = close
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._link: Opened | None = None
        self._failure: Exception | None = None
        threading.Thread(target=self._work, name="busway-open-link", daemon=True).start()

    def is_done(self, seconds: float) -> bool:
        return self._done.wait(max(seconds, 0.0))

    def result(self) -> Opened:
        if self._failure is not None:
            raise self._failure
        assert self._link is not None  # noqa: S101 - without a failure the link is open
        return self._link

    def abandon(self) -> None:
        """Close the link, now or as soon as its thread has opened it."""
        with self._lock:
            link = None if self.is_abandoned else self._link
            self.is_abandoned = True
        if link is not None:
            self._close(link)

    def _work(self) -> None:
        link, failure = None, None
        try:
            link = self._open_link()
        except Exception as error:  # noqa: BLE001 - raised in the caller that waits for the link
            failure = error
        with self._lock:
            self._link, self._failure = link, failure
            is_abandoned = self.is_abandoned
            self._done.set()
        if is_abandoned and link is not None:
            self._close(link)
