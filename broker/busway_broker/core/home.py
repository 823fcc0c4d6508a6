"""
What entities see of their namespace, and the changes that they report to its storage: what must survive the process.

A path names one place for messages or events: that of a store or partition, or the `scheduled_path` of a queue or topic
for its scheduled messages and message ids. Locks are not reported: they end with the process, as if released.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from busway_broker.config import NamespaceConfig
from busway_broker.core.content import Content
from busway_broker.core.event import Event
from busway_broker.core.message import StoredMessage
from busway_broker.core.timers import Timers
from shared.clock import Clock


class Recorder:
    """Receives each change when it happens, with times in milliseconds; this one keeps none."""

    def stored(self, path: str, message: StoredMessage) -> None:
        """Note a new message."""

    def changed(self, path: str, message: StoredMessage) -> None:
        """Note that the content of a message has changed."""

    def updated(self, path: str, message: StoredMessage) -> None:
        """Note the delivery count and the state of a message."""

    def removed(self, path: str, sequence_number: int) -> None:
        """Note that a message is gone."""

    def numbered(self, path: str, sequence_number: int) -> None:
        """Note that a sequence number has been assigned to something that may leave no message."""

    def seen(self, path: str, message_id: bytes, at: int) -> None:
        """Note a message id for duplicate detection."""

    def forgotten(self, path: str, message_ids: Iterable[bytes]) -> None:
        """Note that message ids have left the window of duplicate detection."""

    def session_updated(self, path: str, session_id: str, state: bytes | None, at: int) -> None:
        """Note the state of a session."""

    def appended(self, path: str, events: Sequence[Event]) -> None:
        """Note new events of a partition."""

    def dropped(self, path: str, before: int) -> None:
        """Note that a partition no longer needs the events before a sequence number."""


class Home(Protocol):
    """The namespace as its entities see it."""

    config: NamespaceConfig
    clock: Clock
    timers: Timers
    recorder: Recorder

    def forward(self, content: Content, to: str, hops: int) -> None:
        """Send *content* on its next hop; raises a Refusal with the reason if it cannot be forwarded."""
        ...


def scheduled_path(path: str) -> str:
    """Return the path of the scheduled messages of the queue or topic at *path*."""
    return f"{path}/$Scheduled"
