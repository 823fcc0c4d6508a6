"""What a consumer remembers between the work on one session and the next; losing it costs time, never a message."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

Key = TypeVar("Key", bound=Hashable)
Kept = TypeVar("Kept")

_CAPACITY = 20_000


class Remembered(Generic[Key, Kept]):
    """A mapping that forgets what was noted longest ago; safe to share between threads."""

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
        """Return what is kept under *key*, which is *kept* from now on if nothing was."""
        with self._lock:
            return self._kept.setdefault(key, kept)

    def forget(self, key: Key) -> None:
        """Forget what is kept under *key*, if anything is."""
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

    *leases*: token and beat of a lease of someone else, and since when it has not changed. *seen*: when a message
    came first.
    *blocked*: since when a message waits for an earlier one. *unrecorded*: the token under which the application has
    succeeded with a message when the store was unavailable. *ungiven*: the try that is on record as begun, and that
    the application has not had.
    """

    def __init__(self) -> None:
        self.leases: Remembered[str, tuple[int, int, float]] = Remembered()
        self.seen: Remembered[tuple[str, str], float] = Remembered()
        self.blocked: Remembered[tuple[str, str], float] = Remembered()
        self.unrecorded: Remembered[tuple[str, str], int] = Remembered()
        self.ungiven: Remembered[tuple[str, str], Try] = Remembered()

    def unchanged_seconds(self, partition: str, token: int, beat: int, now: float) -> float:
        """Return for how long the lease of someone else has stayed as it is, as far as this worker has seen."""
        noted = self.leases[partition]
        if noted is None or noted[:2] != (token, beat):
            self.leases[partition] = (token, beat, now)
            return 0.0
        return now - noted[2]
