"""The messages that targets have accepted, so that a redelivered batch does not send them again."""

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import blake2b

from shared.message.arrival import Key
from shared.protocols import Outcome

REMEMBERED_SENDS = 10_000
MOST_RECORDED = 200_000
_IDENTITY_BYTES = 12


def identity_of(key: Key) -> bytes:
    """Return *key* as a journal has it: what the source assigned is in it, so that no producer can choose it."""
    return blake2b(repr(key).encode(), digest_size=_IDENTITY_BYTES).digest()


class AcceptedSends:
    """
    The outcomes of a task's latest messages, by their keys (`Arrival.key`; a part's key has its number too).

    1. The memory belongs to this process. Of what other instances have sent it has the copies and parts on record, as
       far as `shared.line.recall` has read them.
    2. A sent message of an envelope is recognized by its event, in any later envelope. A rejected one is recognized
       only in the same envelope, because a replay of `rejects` brings it in another one.
    3. The least recently used messages make room for new ones, except those of the current batch.
    """

    def __init__(self, limit: int = REMEMBERED_SENDS) -> None:
        """Keep up to *limit* outcomes."""
        self._limit = limit
        self._outcomes: OrderedDict[Key, Outcome] = OrderedDict()
        self._deliveries: dict[Key, Key | None] = {}
        self._recorded: OrderedDict[bytes, Outcome] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of outcomes."""
        return len(self._outcomes)

    def outcome(self, key: Key | None) -> Outcome | None:
        """Return the outcome of a message, None if it is not known."""
        if key is None:
            return None
        if key in self._outcomes:
            self._outcomes.move_to_end(key)
            return self._outcomes[key]
        return self._recorded.get(identity_of(key)) if self._recorded else None

    def recall(self, recorded: Mapping[bytes, Outcome]) -> None:
        """Add outcomes that are on record, by their identities, the latest last; the earliest make room."""
        self._recorded.update(recorded)
        for _ in range(len(self._recorded) - MOST_RECORDED):
            self._recorded.popitem(last=False)

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

    def forget(self) -> None:
        """Forget all that this process has sent."""
        self._outcomes.clear()
        self._deliveries.clear()

    def trim(self, batch_size: int) -> None:
        """Forget messages beyond the limit, except those of the latest batch of *batch_size* messages."""
        for _ in range(len(self._outcomes) - max(self._limit, batch_size)):
            key, _ = self._outcomes.popitem(last=False)
            self._deliveries.pop(key, None)
