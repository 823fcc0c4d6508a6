"""A store in the memory of one process: the fastest, lost when the process ends."""

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta

from busway_clients.errors import ClaimLost, WrongUse
from busway_clients.receivers.stores.store import Claim, State

WINDOW = timedelta(minutes=10)
MAX_IDS = 1_000_000


class MemoryStore:
    """Remembers processed messages for *window*, at most *max_ids*; claims end only with the process."""

    is_local = True

    def __init__(self, window: timedelta = WINDOW, *, max_ids: int = MAX_IDS) -> None:
        """Forget the oldest ids if there are more than *max_ids* within the window."""
        if window <= timedelta() or max_ids < 1:
            raise WrongUse(f"window and max_ids of a store: got {window} and {max_ids}, expected positive values")
        self._window = window.total_seconds()
        self._max_ids = max_ids
        self._done: dict[str, float] = {}
        self._claims: dict[str, str] = {}
        self._lock = threading.Lock()
        self._next_token: Callable[[], int] = itertools.count().__next__

    def __len__(self) -> int:
        """Return the number of remembered ids."""
        return len(self._done)

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, atomically, or return why it cannot be claimed."""
        with self._lock:
            done_at = self._done.get(identity)
            if done_at is not None and done_at > now - self._window:
                return State.DONE
            if identity in self._claims:
                return State.BUSY
            token = self._claims[identity] = str(self._next_token())
        return Claim(identity, token)

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim was processed; raises ClaimLost if the claim is not held."""
        with self._lock:
            if self._claims.get(claim.identity) != claim.token:
                raise ClaimLost(f"message {claim.identity}: its claim is no longer held")
            del self._claims[claim.identity]
            # Removed first, to keep the dictionary ordered by time.
            self._done.pop(claim.identity, None)
            self._done[claim.identity] = now
            self._forget(now - self._window)

    def release(self, claim: Claim) -> None:
        """Release a claim, so that another copy or delivery may be processed."""
        with self._lock:
            if self._claims.get(claim.identity) == claim.token:
                del self._claims[claim.identity]

    def _forget(self, before: float) -> None:
        while self._done:
            oldest = next(iter(self._done))
            if self._done[oldest] > before and len(self._done) <= self._max_ids:
                return
            del self._done[oldest]
