"""Messages that are ready for delivery and the consumers that share them: one queue per entity, or one per session."""

import heapq
from collections import deque
from typing import Protocol

from local.broker.core.message import StoredMessage
from local.broker.errors import Refusal


class Consumer(Protocol):
    """A receiver of messages from a ready queue."""

    @property
    def is_destructive(self) -> bool:
        """Return whether messages are gone once they are handed over (receive and delete)."""
        ...

    def can_take(self) -> bool:
        """Return whether one more message may be handed over now."""
        ...

    def take(self, tag: bytes, message: bytes) -> None:
        """Take an encoded message; the tag is its lock token."""
        ...


class SessionConsumer(Consumer, Protocol):
    """Who receives the messages of one session."""

    def session_granted(self, session: "MessageSession") -> None:
        """Learn which session the wait for the next available one has brought."""
        ...

    def session_refused(self, refusal: Refusal) -> None:
        """Learn that the wait is over without a session."""
        ...

    def session_lost(self, refusal: Refusal) -> None:
        """Learn that the lock on the session is gone."""
        ...


class ReadyQueue:
    """Messages that are ready, by sequence number, and the consumers that take turns."""

    def __init__(self) -> None:
        self._ready: list[int] = []
        self._consumers: deque[Consumer] = deque()

    def add(self, sequence_number: int) -> None:
        """Make a message ready."""
        heapq.heappush(self._ready, sequence_number)

    def next_ready(self, messages: dict[int, StoredMessage]) -> StoredMessage | None:
        """Return the ready message with the lowest sequence number; those no longer in *messages* are forgotten."""
        ready = self._ready
        while ready:
            message = messages.get(ready[0])
            if message is not None:
                return message
            heapq.heappop(ready)
        return None

    def pop(self) -> None:
        """Forget the message that `next_ready` has returned: it is no longer ready."""
        heapq.heappop(self._ready)

    def join(self, consumer: Consumer) -> None:
        """Let *consumer* take turns."""
        self._consumers.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Hand nothing more to *consumer*."""
        self._consumers.remove(consumer)

    @property
    def consumers(self) -> int:
        """Return how many consumers take turns."""
        return len(self._consumers)

    def next_consumer(self) -> Consumer | None:
        """Return the consumer whose turn it is, None if none can take a message."""
        consumers = self._consumers
        for _ in range(len(consumers)):
            consumer = consumers[0]
            if len(consumers) > 1:
                consumers.rotate(-1)
            if consumer.can_take():
                return consumer
        return None


class MessageSession(ReadyQueue):
    """
    The messages with one session id, for one consumer at a time.

    Units: times in milliseconds since 1970 UTC. The state is the application's own, None until it sets one.
    """

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self.session_id = session_id
        self.owner: SessionConsumer | None = None
        self.locked_until = 0
        self.state: bytes | None = None
        self.state_updated_time = 0
        self.in_flight: dict[bytes, StoredMessage] = {}
