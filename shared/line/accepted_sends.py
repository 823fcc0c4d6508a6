"""The messages that targets have accepted, so that a redelivered batch does not send them again."""

from collections import OrderedDict

from shared.message.arrival import Arrival
from shared.protocols import Outcome

REMEMBERED_SENDS = 10_000

type Key = tuple[object, ...]


def key_of(arrival: Arrival) -> Key | None:
    """Return what identifies a message at every delivery, None if the service gave it no sequence number."""
    if arrival.sequence_number is None:
        return None
    # With the enqueued time, messages of an entity that was deleted and created again differ.
    key = arrival.origin.partition, arrival.sequence_number, arrival.enqueued_time
    return key if arrival.event is None else (*key, arrival.event)


class AcceptedSends:
    """
    The outcomes of a task's latest messages, by their keys (`key_of`; a part's key has its number too).

    1. The memory belongs to this process: a message that another instance has sent may be sent again.
    2. A sent message of an envelope is recognized by its event, in any later envelope. A rejected one is recognized
       only in the same envelope, because a replay of `rejects` brings it in another one.
    3. The least recently used messages make room for new ones, except those of the current batch.
    """

    def __init__(self, limit: int = REMEMBERED_SENDS) -> None:
        """Keep up to *limit* outcomes."""
        self._limit = limit
        self._outcomes: OrderedDict[Key, Outcome] = OrderedDict()
        self._deliveries: dict[Key, Key | None] = {}

    def __len__(self) -> int:
        """Return the number of outcomes."""
        return len(self._outcomes)

    def outcome(self, key: Key | None) -> Outcome | None:
        """Return the outcome of a message, None if it is not known."""
        if key is None or key not in self._outcomes:
            return None
        self._outcomes.move_to_end(key)
        return self._outcomes[key]

    def is_copy(self, event_key: Key | None, delivery: Key | None) -> bool:
        """Return whether the remembered message of an envelope was sent from another one than this *delivery*."""
        return event_key in self._deliveries and self._deliveries[event_key] != delivery

    def remember(self, key: Key | None, outcome: Outcome) -> None:
        """Remember the outcome of a message; a message without a key cannot be recognized and is not remembered."""
        if key is not None:
            self._outcomes[key] = outcome

    def remember_event(self, event_key: Key, delivery: Key | None, outcome: Outcome) -> None:
        """Remember the outcome of a message of an envelope, which came with this *delivery*."""
        self.remember(event_key, outcome)
        self._deliveries[event_key] = delivery

    def trim(self, batch_size: int) -> None:
        """Forget messages beyond the limit, except those of the latest batch of *batch_size* messages."""
        for _ in range(len(self._outcomes) - max(self._limit, batch_size)):
            key, _ = self._outcomes.popitem(last=False)
            self._deliveries.pop(key, None)
