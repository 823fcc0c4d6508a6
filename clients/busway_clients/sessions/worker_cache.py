"""What a worker remembers between sessions; losing it costs time, never a message."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

Key = TypeVar("Key")
Kept = TypeVar("Kept")

_CAPACITY = 20_000


class Try(NamedTuple):
    """An attempt at a message, and whether an earlier one may have run."""

    worker: str
    attempt: int
    may_have_run: bool


@dataclass
class MessageMemory:
    """
    What a worker remembers of a message; times are local and monotonic.

    *seen*: when it was first received. *blocked_since*: since when it waits for an earlier one. *unrecorded*: the token
    under which the application processed it while the store was unavailable. *uncounted*: the attempt that is recorded
    as started but does not count.
    """

    seen: float
    blocked_since: float | None = None
    unrecorded: int | None = None
    uncounted: Try | None = None


class WorkerCache:
    """The memory of a worker, of which the oldest is dropped when there is too much; safe to share between threads."""

    def __init__(self) -> None:
        self._leases: OrderedDict[str, tuple[int, int, float]] = OrderedDict()
        self._messages: OrderedDict[tuple[str, str], MessageMemory] = OrderedDict()
        self._lock = threading.Lock()

    def message(self, partition: str, message_id: str, now: float) -> MessageMemory:
        """Return what is remembered of a message, which is seen *now* if nothing is."""
        with self._lock:
            return _kept(self._messages, (partition, message_id), lambda: MessageMemory(now))

    def forget(self, partition: str, message_id: str) -> None:
        """Forget a message that is settled."""
        with self._lock:
            self._messages.pop((partition, message_id), None)

    def unchanged_seconds(self, partition: str, token: int, beat: int, now: float) -> float:
        """Return for how long this worker has seen another worker's lease unchanged."""
        with self._lock:
            noted = _kept(self._leases, partition, lambda: (token, beat, now))
            if noted[:2] != (token, beat):
                noted = self._leases[partition] = (token, beat, now)
            return now - noted[2]


def _kept(memory: OrderedDict[Key, Kept], key: Key, create: Callable[[], Kept]) -> Kept:
    if key not in memory:
        memory[key] = create()
        if len(memory) > _CAPACITY:
            memory.popitem(last=False)
    memory.move_to_end(key)
    return memory[key]
