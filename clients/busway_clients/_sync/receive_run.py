# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""How long receivers run: until they are stopped, or no message has come from any namespace for a while."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.concurrency.threads import Event, SideTask, is_set_within

WAIT_SECONDS = 5.0
_WATCH_SECONDS = 0.5
"""How late the end of a run may be noticed, if a namespace does not answer."""

Application = Callable[[ServiceBusReceivedMessage], object]


@dataclass
class ReceiveRun:
    """
    One run of a receiver over all its namespaces; it ends for all of them together.

    Shape:  opening has the namespaces that have not answered yet.
    Units:  idle in seconds, None for a run that only *stop* ends; open_seconds is how long the run waits for a
            namespace that has not answered yet.
    """

    application: Application
    opening: set[str]
    stop: Event
    idle: float | None
    open_seconds: float

    def __post_init__(self) -> None:
        self._handling: set[str] = set()
        self._started = self._since = time.monotonic()
        self._over_since: float | None = None

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until the run is stopped."""
        is_set_within(self.stop, seconds if self.idle is None else min(seconds, self.idle))

    def end(self) -> None:
        """End the run, if it has not ended."""
        if self._over_since is None:
            self._over_since = time.monotonic()

    def is_over(self) -> bool:
        """Return whether the run is over; messages in progress are still finished."""
        if self._over_since is None and (self.stop.is_set() or self._is_idle()):
            self.end()
        return self._over_since is not None

    def note_answer(self, name: str) -> None:
        """Record that opening a namespace has succeeded or failed."""
        if name in self.opening:
            self.opening.discard(name)
            self._since = time.monotonic()

    @contextmanager
    def handling(self, name: str) -> Iterator[None]:
        """Record that a message is in progress while the context lasts."""
        self._handling.add(name)
        try:
            yield
        finally:
            self._since = time.monotonic()
            self._handling.discard(name)

    def is_waited_for(self, name: str) -> bool:
        """
        Return whether to wait for the receiver of a namespace to end.

        A peer that never answers may block the SDK forever, so the wait for it is limited; the wait for an application
        that processes a message is not.
        """
        if not self.is_over() or name in self._handling:
            return True
        if name in self.opening:
            return time.monotonic() - self._started < self.open_seconds
        return time.monotonic() - (self._over_since or 0.0) < 2 * WAIT_SECONDS

    def _is_idle(self) -> bool:
        if self.idle is None or self._handling:
            return False
        now = time.monotonic()
        is_opening = self.opening and now - self._started < max(self.idle, self.open_seconds)
        return not is_opening and now - self._since >= self.idle


def join(
    tasks: Mapping[str, SideTask[None]], is_waited_for: Callable[[str], bool], end: Callable[[], None] = lambda: None
) -> None:
    """
    Wait for all *tasks* while each *is_waited_for*, *end* their work and abandon them.

    Raises the first error of those that ended in time.
    """
    try:
        while running := [name for name, task in tasks.items() if not task.is_done and is_waited_for(name)]:
            tasks[running[0]].wait(_WATCH_SECONDS)
        ended = [task for task in tasks.values() if task.is_done]
    finally:
        end()
        for task in tasks.values():
            task.abandon()
    for failure in [task.error for task in ended]:
        if failure is not None:
            raise failure
