"""The messages that an application received on one link and has not settled."""

import threading
from collections.abc import Iterable
from datetime import UTC, datetime

from azure.servicebus import ServiceBusReceivedMessage


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
