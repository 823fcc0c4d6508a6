"""The memory of a de-duplicating receiver: what it asks of a store, and stores in memory, a file and a table."""

import hashlib
import itertools
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

from busway_clients._sync.rows import RowStore
from busway_clients._sync.rows import SqliteStore as Rows
from busway_clients.errors import ClaimLost, Conflict, WrongUse
from busway_clients.rows import Properties, Row, Write


class State(Enum):
    """Why a message may not be claimed."""

    BUSY = "another receiver is processing a copy"
    DONE = "a copy has been processed"


class Claim(NamedTuple):
    """The right to process the copies of one message; its token is unique to this claim."""

    identity: str
    token: str


class Store(Protocol):
    """
    Claims and processed messages; a claim lasts until it is recorded or released.

    A local store answers at once and cannot fail. Asynchronous receivers call any other in a thread, and it may raise
    StoreUnavailable. Units: now in seconds since 1970.
    """

    @property
    def is_local(self) -> bool:
        """Whether the store is in the memory of this process."""

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, atomically, or return why it cannot be claimed."""

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim was processed; raises ClaimLost if the claim has expired."""

    def release(self, claim: Claim) -> None:
        """Release a claim, so that another copy or delivery may be processed; do nothing if it has expired."""


@runtime_checkable
class LeasedStore(Store, Protocol):
    """A store whose claims expire unless they are renewed, since a receiver may die with its claim."""

    @property
    def lease(self) -> timedelta:
        """How long a claim lasts after it was made or renewed."""

    def renew(self, claim: Claim, now: float) -> None:
        """Extend a claim by a lease from now; raises ClaimLost if it is no longer held."""


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
            while self._done[oldest := next(iter(self._done))] <= now - self._window or len(self._done) > self._max_ids:
                del self._done[oldest]

    def release(self, claim: Claim) -> None:
        """Release a claim, so that another copy or delivery may be processed."""
        with self._lock:
            if self._claims.get(claim.identity) == claim.token:
                del self._claims[claim.identity]


_LOGGER = logging.getLogger("busway_clients.receivers")
_RENEWALS = 4
"""How often a claim is renewed within its lease, so that up to three renewals may fail and clocks may differ."""
_CLAIM_ATTEMPTS = 10


@contextmanager
def renewing(store: Store, claim: Claim) -> Iterator[None]:
    """
    Renew a claim while the context lasts, if the store has leases.

    It has a thread, since the application may block its own threads and event loops.
    """
    ended = threading.Event()

    def keep_renewing(leased: LeasedStore) -> None:
        while not ended.wait(leased.lease.total_seconds() / _RENEWALS):
            try:
                leased.renew(claim, time.time())
            except ClaimLost:
                # It was released or recorded in the meantime; if it has expired, recording it fails.
                return
            except Exception as error:  # noqa: BLE001 - any kind of store, and the next renewal may succeed
                _LOGGER.warning("message %s: its claim could not be renewed: %s", claim.identity, type(error).__name__)

    if isinstance(store, LeasedStore):
        threading.Thread(target=keep_renewing, args=(store,), name="renew claim", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


LEASE = timedelta(minutes=1)


class StoredClaims:
    """
    Remembers processed messages for *window*, in a store of rows whose versions are the locks.

    A claim lasts for *lease* unless it is renewed; receivers renew it while the application works. After that, another
    copy may be processed, since the receiver has died or cannot reach the store. Half of *lease* must be longer than
    the difference between clocks.
    """

    is_local = False

    def __init__(self, rows: RowStore, name: str, window: timedelta, lease: timedelta) -> None:
        """Receivers with the same *name*, such as that of their queue, share what is remembered."""
        if window <= timedelta() or lease <= timedelta():
            raise WrongUse(f"window and lease of a store: got {window} and {lease}, expected positive values")
        self.lease = lease
        self._rows = rows
        self._name = name
        self._window = window.total_seconds()

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, atomically, or return why it cannot be claimed."""
        claim = Claim(identity, uuid.uuid4().hex)
        former: Row | None = None
        for _ in range(_CLAIM_ATTEMPTS):
            if self._is_written(identity, claim.token, now + self.lease.total_seconds(), former):
                return claim
            former = self._row(identity)
            if former is None:
                continue  # purged at this moment
            if former.properties["token"] == claim.token:
                return claim  # written, but the answer was lost
            if float(former.properties["until"]) > now:
                return State.DONE if former.properties["is_done"] else State.BUSY
        return State.BUSY  # others write it all the time

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim was processed; raises ClaimLost if the claim has expired."""
        self._require_change(claim, now + self._window, is_done=True)

    def renew(self, claim: Claim, now: float) -> None:
        """Extend a claim by a lease from now; raises ClaimLost if it is no longer held."""
        self._require_change(claim, now + self.lease.total_seconds(), is_done=False)

    def release(self, claim: Claim) -> None:
        """Release a claim, so that another copy or delivery may be processed; do nothing if it has expired."""
        self._is_changed(claim, "", 0.0, is_done=False)

    def purge(self, now: float) -> int:
        """Delete expired rows and return their number. Units: now in seconds since 1970."""
        return self._rows.forget(datetime.fromtimestamp(now, UTC), f"{self._name}-")

    def close(self) -> None:
        """Close the store."""
        self._rows.close()

    def _require_change(self, claim: Claim, until: float, *, is_done: bool) -> None:
        if not self._is_changed(claim, claim.token, until, is_done=is_done):
            raise ClaimLost(f"{self._rows.name}, message {claim.identity}: its claim has expired")

    def _is_changed(self, claim: Claim, token: str, until: float, *, is_done: bool) -> bool:
        """
        Change the row of a claim, and return whether the claim is held or has been recorded.

        A renewal may interfere, so it is repeated; after a lost answer the repeated change finds that it was made.
        """
        while (found := self._row(claim.identity)) is not None and found.properties["token"] == claim.token:
            if found.properties["is_done"] or self._is_written(claim.identity, token, until, found, is_done=is_done):
                return True
        return False

    def _row(self, identity: str) -> Row | None:
        partition, key = self._keys(identity)
        found = next(iter(self._rows.read(partition, [key], with_open=False)), None)
        if found is not None:
            found.require({"token", "is_done", "until"}, f"{self._rows.name}, {partition}")
        return found

    def _is_written(
        self, identity: str, token: str, until: float, former: Row | None, *, is_done: bool = False
    ) -> bool:
        partition, key = self._keys(identity)
        finished = datetime.fromtimestamp(until, UTC).isoformat()
        properties: Properties = {"token": token, "is_done": is_done, "until": float(until), "Finished": finished}
        try:
            self._rows.write(partition, [Write(key, properties, None if former is None else former.version)])
        except Conflict:
            return False
        return True

    def _keys(self, identity: str) -> tuple[str, str]:
        # Ids may contain characters that keys must not; several partitions share the load.
        digest = hashlib.sha256(identity.encode()).hexdigest()
        return f"{self._name}-{digest[:2]}", digest


class SqliteStore(StoredClaims):
    """Remembers processed messages for *window*, in a file that the processes of one machine may share."""

    def __init__(
        self, path: str | os.PathLike[str], window: timedelta = WINDOW, *, lease: timedelta = LEASE, name: str = ""
    ) -> None:
        """
        Open the file at *path*, or create it; raises StoreUnavailable.

        Receivers with the same *name*, such as that of their queue, share what is remembered.
        """
        super().__init__(Rows(path), name, window, lease)
        self._rows.open()
        self._purge_at = 0.0

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, atomically, or return why it cannot be claimed."""
        if now >= self._purge_at:
            self._purge_at = now + self._window
            self.purge(now)
        return super().claim(identity, now)
