"""
Decides when a client moves from one endpoint to another, and which of its messages are unsettled then, without I/O.

1. It moves when the first of the wanted endpoints is in another namespace than the current one.
2. Before that it waits at most `drain_seconds` until the messages that it received are settled. During an outage they
   cannot be settled, and the namespace delivers them again.
3. It opens the new link before it closes the old one. If no new link can be opened, it stays and retries later.
"""

import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import Enum

from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.endpoints.endpoint import Endpoint


class Step(Enum):
    """What to do before the next use."""

    STAY = "stay"
    DRAIN = "drain"
    MOVE = "move"


class Switching:
    """The endpoint that a client uses, and when it moves to another."""

    def __init__(self, drain_seconds: float, retry_seconds: float) -> None:
        """Wait at most *drain_seconds* for unsettled messages, and *retry_seconds* before trying an endpoint again."""
        self.current: Endpoint | None = None
        self._drain_seconds = drain_seconds
        self._retry_seconds = retry_seconds
        self._wanted: tuple[Endpoint, ...] = ()
        self._wanted_since = 0.0
        self._failed: tuple[Endpoint, ...] = ()
        self._failed_until = 0.0

    def next_step(self, wanted: tuple[Endpoint, ...], unsettled: int, now: float) -> Step:
        """Return what to do; *unsettled* counts the messages that are not settled at the current endpoint."""
        if self.current is None:
            return Step.MOVE
        if wanted[0].namespace == self.current.namespace:
            self._wanted = ()
            return Step.STAY
        if wanted == self._failed and now < self._failed_until:
            return Step.STAY
        if wanted != self._wanted:
            self._wanted, self._wanted_since = wanted, now
        return Step.DRAIN if unsettled and self.drain_seconds_left(now) > 0 else Step.MOVE

    def drain_seconds_left(self, now: float) -> float:
        """Return how many more seconds to wait for unsettled messages."""
        return max(self._wanted_since + self._drain_seconds - now, 0.0)

    def candidates(self, wanted: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """Return the endpoints to try in turn: those before the current one."""
        if self.current is None or self.current not in wanted:
            return wanted
        return wanted[: wanted.index(self.current)]

    def note_moved(self, endpoint: Endpoint, wanted: tuple[Endpoint, ...], now: float) -> None:
        """Record that the client now uses *endpoint*."""
        self.current = endpoint
        self._wanted = ()
        if endpoint.namespace != wanted[0].namespace:
            self.note_failed(wanted, now)

    def note_failed(self, wanted: tuple[Endpoint, ...], now: float) -> None:
        """Record that the first of *wanted* could not be opened."""
        self._failed, self._failed_until = wanted, now + self._retry_seconds


class HandedOut:
    """The messages of one link that the application has received; safe to use from several threads."""

    def __init__(self) -> None:
        """Start without messages."""
        self._messages: dict[int, ServiceBusReceivedMessage] = {}
        self._settling_failed: set[int] = set()
        self._lock = threading.Lock()

    def __contains__(self, message: ServiceBusReceivedMessage) -> bool:
        return self._messages.get(id(message)) is message

    def add(self, messages: Iterable[ServiceBusReceivedMessage]) -> None:
        """Add the messages that must be settled, and forget earlier ones whose lock has expired."""
        now = datetime.now(UTC)
        with self._lock:
            held = self._messages.items()
            lost = [key for key, message in held if message.locked_until_utc and message.locked_until_utc < now]
            for key in lost:
                del self._messages[key]
                self._settling_failed.discard(key)
            self._messages |= {id(message): message for message in messages if message.lock_token is not None}

    def note_settled(self, message: ServiceBusReceivedMessage) -> None:
        """Forget a message that is settled."""
        with self._lock:
            self._messages.pop(id(message), None)
            self._settling_failed.discard(id(message))

    def note_failure(self, message: ServiceBusReceivedMessage) -> None:
        """Stop waiting for a message that could not be settled; the application may still try again."""
        self._settling_failed.add(id(message))

    def unsettled(self, session_until: datetime | None) -> int:
        """Return how many messages are unsettled and still locked; *session_until* is when their session lock ends."""
        now = datetime.now(UTC)
        with self._lock:
            until = {key: message.locked_until_utc or session_until for key, message in self._messages.items()}
        return sum(key not in self._settling_failed and (end is None or end > now) for key, end in until.items())
