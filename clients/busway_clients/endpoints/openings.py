"""
Links that are opened in threads of their own.

The synchronous SDK waits without end for something that accepts a connection and does not speak. Whoever opens a link
waits for it within bounds, and an endpoint has one thread at most, however often it is tried.
"""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from busway_clients.endpoints.endpoint import Endpoint

BESIDE_SECONDS = 1.0
"""How long who has a good link waits for the next one before he goes on with it."""

Link = TypeVar("Link")


class StillOpening(Exception):
    """A link is not open yet, and its time is not over."""


class Openings(Generic[Link]):
    """The links that one client opens, one call at a time."""

    def __init__(
        self,
        opening: Callable[[Endpoint], Link],
        closing: Callable[[Link], None],
        open_seconds: float,
        beside_seconds: float = BESIDE_SECONDS,
    ) -> None:
        """Open by *opening* within *open_seconds*; *closing* is for links that nobody wants any more."""
        self._beside_seconds = beside_seconds
        self._opening = opening
        self._closing = closing
        self._open_seconds = open_seconds
        self._under_way: dict[Endpoint, _Opening[Link]] = {}

    def link(self, endpoint: Endpoint, *, beside: bool) -> Link:
        """
        Return a link to *endpoint*, waiting for it as long as it may take, or *beside_seconds* where there is another.

        Raises what its opening raises; StillOpening where it is not open *beside* the other yet; TimeoutError when its
        time is over, and at once until its thread has ended.
        """
        opening = self._under_way.get(endpoint)
        if opening is None or (opening.is_left and opening.is_done(0)):
            opening = _Opening(partial(self._opening, endpoint), self._closing)
            self._under_way[endpoint] = opening
        if not opening.is_left:
            patience = min(self._beside_seconds, self._open_seconds) if beside else self._open_seconds
            if opening.is_done(opening.began + patience - time.monotonic()):
                del self._under_way[endpoint]
                return opening.result()
            if beside and time.monotonic() < opening.began + self._open_seconds:
                raise StillOpening
            opening.leave()
        raise TimeoutError(f"no link could be opened within {self._open_seconds:g} s")

    def leave(self) -> None:
        """Want none of the links that are on their way any more."""
        for opening in self._under_way.values():
            opening.leave()


class _Opening(Generic[Link]):
    def __init__(self, opening: Callable[[], Link], closing: Callable[[Link], None]) -> None:
        self.began = time.monotonic()
        self.is_left = False
        self._opening = opening
        self._closing = closing
        self._turn = threading.Lock()
        self._done = threading.Event()
        self._link: Link | None = None
        self._failure: Exception | None = None
        threading.Thread(target=self._work, name="busway-opening", daemon=True).start()

    def is_done(self, seconds: float) -> bool:
        return self._done.wait(max(seconds, 0.0))

    def result(self) -> Link:
        if self._failure is not None:
            raise self._failure
        assert self._link is not None  # noqa: S101 - there is one where there is no failure
        return self._link

    def leave(self) -> None:
        """Close the link, now or by the thread that opens it."""
        with self._turn:
            link = None if self.is_left else self._link
            self.is_left = True
        if link is not None:
            self._closing(link)

    def _work(self) -> None:
        link, failure = None, None
        try:
            link = self._opening()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            failure = error
        with self._turn:
            self._link, self._failure = link, failure
            is_left = self.is_left
            self._done.set()
        if is_left and link is not None:
            self._closing(link)
