"""WorkerCache of one process: the fastest, and gone with it."""

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta

from busway_clients.errors import ClaimLost, WrongUse
from busway_clients.receivers.stores.store import Claim, State

WINDOW = timedelta(minutes=10)
MAX_IDS = 1_000_000


class MemoryStore:
    """Remembers for *window* what was processed, and at most *max_ids* of it; claims end with the process only."""

    is_local = True

    def __init__(self, window: timedelta = WINDOW, *, max_ids: int = MAX_IDS) -> None:
        """With more than *max_ids* within the window the oldest are forgotten first."""
        if window <= timedelta() or max_ids < 1:
            raise WrongUse(f"the window of a store: is {window} and {max_ids} ids, expected positive ones")
        self._window = window.total_seconds()
        self._max_ids = max_ids
        self._done: dict[str, float] = {}
        self._claims: dict[str, str] = {}
        self._turn = threading.Lock()
        self._next_token: Callable[[], int] = itertools.count().__next__

    def __len__(self) -> int:
        """Return how many ids are remembered."""
        return len(self._done)

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, of all who ask one at a time; or say why not."""
        with self._turn:
            done_at = self._done.get(identity)
            if done_at is not None and done_at > now - self._window:
                return State.DONE
            if identity in self._claims:
                return State.BUSY
            token = self._claims[identity] = str(self._next_token())
        return Claim(identity, token)

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim has been processed."""
        with self._turn:
            if self._claims.get(claim.identity) != claim.token:
                raise ClaimLost(f"message {claim.identity}: its claim is not held any more")
            del self._claims[claim.identity]
            # Removed first, so that the dictionary is in the order of the times.
            self._done.pop(claim.identity, None)
            self._done[claim.identity] = now
            self._forget(now - self._window)

    def release(self, claim: Claim) -> None:
        """Give a claim back, so that another copy or delivery may be processed."""
        with self._turn:
            if self._claims.get(claim.identity) == claim.token:
                del self._claims[claim.identity]

    def _forget(self, before: float) -> None:
        while self._done:
            oldest = next(iter(self._done))
            if self._done[oldest] > before and len(self._done) <= self._max_ids:
                return
            del self._done[oldest]
