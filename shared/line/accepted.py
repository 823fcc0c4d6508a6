"""What the targets have accepted, so that the redelivery of a batch does not send it again."""

from collections import OrderedDict

from shared.protocols import Outcome

REMEMBERED_SENDS = 10_000

type Key = tuple[object, ...]


class AcceptedSends:
    """
    The outcomes of a task's latest messages, by what tells a message from all others at every delivery.

    1. It is this process's alone: what another instance has sent, it may send again.
    2. It holds *limit* messages, those longest unused making room; a batch that is larger than that is held whole.
    """

    def __init__(self, limit: int = REMEMBERED_SENDS) -> None:
        """Hold *limit* outcomes."""
        self._limit = limit
        self._outcomes: OrderedDict[Key, Outcome] = OrderedDict()

    def __len__(self) -> int:
        """Return how many outcomes are held."""
        return len(self._outcomes)

    def outcome(self, key: Key | None) -> Outcome | None:
        """Return what became of a message, None where nothing is known of it."""
        if key is None or key not in self._outcomes:
            return None
        self._outcomes.move_to_end(key)
        return self._outcomes[key]

    def remember(self, key: Key | None, outcome: Outcome) -> None:
        """Keep what became of a message; one without a key cannot be told from others and is not kept."""
        if key is not None:
            self._outcomes[key] = outcome

    def trim(self, batch_size: int) -> None:
        """Forget what is over the limit, after a batch of so many messages: none of them, however many they are."""
        while len(self._outcomes) > max(self._limit, batch_size):
            self._outcomes.popitem(last=False)
