"""Messages that are ready for delivery and the consumers that share them: one queue per entity, or one per session."""

import heapq
from collections import deque
from typing import Protocol

from busway_broker.core.message import StoredMessage
from busway_broker.errors import Refusal


class Consumer(Protocol):
    """A receiver of messages from a ready queue."""

    is_destructive: bool
    """Whether messages are deleted when they are delivered (receive and delete)."""

    def can_take(self) -> bool:
        """Return whether one more message can be delivered now."""
        ...

    def take(self, tag: bytes, message: bytes) -> None:
        """Accept an encoded message; the tag is its lock token, empty for one that is deleted."""
        ...


class SessionConsumer(Consumer, Protocol):
    """A receiver of the messages of one session."""

    @property
    def connection(self) -> object:
        """Return the connection that it receives on."""
        ...

    def session_granted(self, session: "MessageSession") -> None:
        """Start with the session that has become available."""
        ...

    def session_refused(self) -> None:
        """Stop waiting: no session became available in time."""
        ...

    def session_lost(self, refusal: Refusal) -> None:
        """Stop: the lock on the session is lost."""
        ...


class ReadyQueue:
    """The messages that are ready, by sequence number unless put behind others, and the consumers in turn."""

    def __init__(self, consumers: deque[Consumer] | None = None) -> None:
        """Share *consumers* with other queues, which add and remove them."""
        # Sequence numbers in order: a new message is behind all others. In a heap, each would take 50 bytes more.
        self._new: deque[int] = deque()
        # (place, sequence number) of the messages that were returned, as a heap.
        self._returned: list[tuple[int, int]] = []
        self.consumers: deque[Consumer] = deque() if consumers is None else consumers

    def add(self, sequence_number: int, *, after: int = 0) -> None:
        """Make a message ready, behind all with a sequence number up to *after*."""
        if after <= sequence_number and (not self._new or self._new[-1] < sequence_number):
            self._new.append(sequence_number)
            return
        # Places are doubled, so that one lies behind a message and before the next.
        place = 2 * sequence_number if after <= sequence_number else 2 * after + 1
        heapq.heappush(self._returned, (place, sequence_number))

    def next_ready(self, messages: dict[int, StoredMessage]) -> StoredMessage | None:
        """Return the first ready message; those no longer in *messages* are dropped."""
        if not self._returned:
            # Nearly always.
            new = self._new
            while new:
                message = messages.get(new[0])
                if message is not None:
                    return message
                new.popleft()
            return None
        while self._new or self._returned:
            number = self._returned[0][1] if self._is_returned_first() else self._new[0]
            message = messages.get(number)
            if message is not None:
                return message
            self.pop()
        return None

    def pop(self) -> None:
        """Remove the message that `next_ready` has returned."""
        if self._returned and self._is_returned_first():
            heapq.heappop(self._returned)
        else:
            self._new.popleft()

    def _is_returned_first(self) -> bool:
        return bool(self._returned) and (not self._new or self._returned[0][0] < 2 * self._new[0])

    def join(self, consumer: Consumer) -> None:
        """Add a consumer."""
        self.consumers.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Remove a consumer."""
        self.consumers.remove(consumer)

    def next_consumer(self) -> Consumer | None:
        """Return the consumer whose turn it is, None if none can take a message."""
        consumers = self.consumers
        if len(consumers) == 1:
            return consumers[0] if consumers[0].can_take() else None
        for _ in range(len(consumers)):
            consumer = consumers[0]
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
