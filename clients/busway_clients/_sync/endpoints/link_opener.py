# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""
Opens links beside the caller.

The synchronous SDK waits without limit for a peer that accepts a connection and does not answer. Here the caller waits
for a limited time. An endpoint is tried by one call at a time, however often a link is asked for.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Generic, TypeVar

from busway_clients.concurrency.threads import SideTask
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import Link, StillOpening

BESIDE_SECONDS = 1.0
"""How long a caller with a working link waits for the next one before it continues with its own."""

Opened = TypeVar("Opened")


def open_link(connect: Callable[[Endpoint], Any], open_client: Callable[[Any], Any], endpoint: Endpoint) -> Link:
    """Open an SDK client of *endpoint*, and its sender or receiver."""
    with ExitStack() as stack:
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
        self._pending: dict[Endpoint, tuple[SideTask[Opened], float]] = {}

    def open(self, endpoint: Endpoint, *, beside: bool) -> Opened:
        """
        Return a link to *endpoint* within open_seconds, or *beside_seconds* if the caller has another link.

        Raises what opening raises; StillOpening if it is not open yet *beside* the other link; TimeoutError after
        open_seconds, and then immediately until the SDK returns.
        """
        opening, began = self._pending.get(endpoint, (None, 0.0))
        if opening is None or (opening.is_abandoned and opening.is_done):
            opening, began = SideTask(partial(self._open_link, endpoint), "open link", self._close), time.monotonic()
            self._pending[endpoint] = (opening, began)
        if not opening.is_abandoned:
            seconds = min(self._beside_seconds, self._open_seconds) if beside else self._open_seconds
            try:
                is_done = opening.wait(began + seconds - time.monotonic())
            except BaseException:
                # The link may lock a session that nobody receives.
                opening.abandon()
                raise
            if is_done:
                del self._pending[endpoint]
                return opening.result()
            if beside and time.monotonic() < began + self._open_seconds:
                raise StillOpening
            opening.abandon()
        raise TimeoutError(f"no link could be opened within {self._open_seconds:g} s")

    def abandon(self) -> None:
        """Abandon the links that are still opening."""
        for opening, _ in self._pending.values():
            opening.abandon()
