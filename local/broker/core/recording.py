"""
What the core tells whoever keeps its state: every change that must outlive the process.

A path names one place for messages or events: that of a store or partition, or `scheduled_path` of a queue or topic for
its scheduled messages. Locks are not told of: they end with the process, as if they had been released.
"""

from collections.abc import Sequence
from typing import Protocol

from local.broker.core.event import Event
from local.broker.core.message import StoredMessage


class Recorder(Protocol):
    """Who is told; it must note what it is told at once, as messages change afterwards. Times in milliseconds."""

    def stored(self, path: str, message: StoredMessage) -> None:
        """Note a new message, or one whose content has changed."""
        ...

    def updated(self, path: str, message: StoredMessage) -> None:
        """Note the delivery count and the state of a message."""
        ...

    def removed(self, path: str, sequence_number: int) -> None:
        """Note that a message is gone."""
        ...

    def numbered(self, path: str, sequence_number: int) -> None:
        """Note that a sequence number has been given to something that may leave no message."""
        ...

    def seen(self, path: str, message_id: bytes, at: int) -> None:
        """Note a message id for the detection of duplicates."""
        ...

    def session_updated(self, path: str, session_id: str, state: bytes | None, at: int) -> None:
        """Note the state of a session."""
        ...

    def appended(self, path: str, events: Sequence[Event]) -> None:
        """Note new events of a partition."""
        ...


def scheduled_path(path: str) -> str:
    """Return where the scheduled messages of the queue or topic at *path* are."""
    return f"{path}/$Scheduled"
