"""What the records of a log add up to."""

from dataclasses import dataclass, field

from local.broker.core.event import Event
from local.broker.core.message import StoredMessage


@dataclass(slots=True)
class Place:
    """
    What is at one path of a namespace: messages of a store, scheduled messages of an entity, or events of a partition.

    Shape:  messages by sequence number, not in order; last_number is the highest that was given; seen are message ids
            with their times, sessions are states with theirs. Times are in milliseconds since 1970 UTC.
    """

    messages: dict[int, StoredMessage] = field(default_factory=dict)
    last_number: int = 0
    seen: dict[bytes, int] = field(default_factory=dict)
    sessions: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def clear(self) -> None:
        """Forget everything."""
        self.messages.clear()
        self.last_number = 0
        self.seen.clear()
        self.sessions.clear()
        self.events.clear()

    @property
    def in_order(self) -> list[StoredMessage]:
        """Return the messages by sequence number."""
        return sorted(self.messages.values(), key=lambda message: message.sequence_number)


@dataclass(slots=True)
class State:
    """All places by path, and the entities as plain data by key (see `entities`)."""

    places: dict[str, Place] = field(default_factory=dict)
    entities: dict[str, dict[str, object]] = field(default_factory=dict)

    def place(self, path: str) -> Place:
        """Return what is at a path, be it nothing; case does not count."""
        return self.places.setdefault(path.lower(), Place())
