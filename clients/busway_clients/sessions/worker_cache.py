"""What a worker remembers between sessions; losing it costs time, never a message."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Kept = TypeVar("Kept")

_CAPACITY = 20_000


class Remembered(Generic[Key, Kept]):
    """A mapping that drops the oldest keys when it is full; safe to share between threads."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, key: Key) -> Kept | None:
        with self._lock:
            return self._kept.get(key)

    def __setitem__(self, key: Key, kept: Kept) -> None:
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > self._capacity:
                self._kept.popitem(last=False)

    def first(self, key: Key, kept: Kept) -> Kept:
        """Return the value of *key*, which is set to *kept* if it has none."""
        with self._lock:
            return self._kept.setdefault(key, kept)

    def forget(self, key: Key) -> None:
        """Remove *key*, if it is there."""
        with self._lock:
            self._kept.pop(key, None)


class Try(NamedTuple):
    """An attempt at a message, and whether an earlier one may have run."""

    worker: str
    attempt: int
    may_have_run: bool


class WorkerCache:
    """
    The memory of a worker; keys are partitions, or partition and message id; times are local and monotonic.

    *leases*: token and beat of another worker's lease, and the time since which it is unchanged. *seen*: when a message
    was first received. *blocked*: the time since which a message waits for an earlier one. *unrecorded*: the token
    under which the application processed a message while the store was unavailable. *uncounted*: the attempt that is
    recorded as started but does not count.
    """

    def __init__(self) -> None:
        self.leases: Remembered[str, tuple[int, int, float]] = Remembered()
        self.seen: Remembered[tuple[str, str], float] = Remembered()
        self.blocked: Remembered[tuple[str, str], float] = Remembered()
        self.unrecorded: Remembered[tuple[str, str], int] = Remembered()
        self.uncounted: Remembered[tuple[str, str], Try] = Remembered()

    def unchanged_seconds(self, partition: str, token: int, beat: int, now: float) -> float:
        """Return for how long this worker has seen another worker's lease unchanged."""
        noted = self.leases[partition]
        if noted is None or noted[:2] != (token, beat):
            self.leases[partition] = (token, beat, now)
            return 0.0
        return now - noted[2]
