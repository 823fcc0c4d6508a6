"""The memory of a de-duplicating receiver: what it asks of a store, one in memory, and one in a SQLite file."""

import itertools
import os
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

from busway_clients.database import Database, Kind
from busway_clients.errors import ClaimLost, WrongUse


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


LEASE = timedelta(minutes=1)
_FILE = Kind(
    "the memory of a de-duplicating receiver",
    0x42574452,
    2,
    """
    CREATE TABLE IF NOT EXISTS messages (
        name TEXT NOT NULL,
        identity TEXT NOT NULL,
        token TEXT NOT NULL,
        is_done INTEGER NOT NULL,
        until REAL NOT NULL,
        PRIMARY KEY (name, identity)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS ends ON messages (until)
    """,
)
# Each claim deletes a few expired rows: more than it adds, and few enough to be cheap.
_FORGET = """
    DELETE FROM messages WHERE (name, identity) IN (SELECT name, identity FROM messages WHERE until <= ? LIMIT 5)
"""
_HELD = "name = ? AND identity = ? AND token = ?"


class SqliteStore:
    """
    Remembers processed messages for *window*, in a file that the processes of one machine may share.

    A claim lasts for *lease* unless it is renewed; receivers renew it while the application works. After that, another
    copy may be processed, since the receiver has died or cannot reach the file.
    """

    is_local = False

    def __init__(
        self, path: str | os.PathLike[str], window: timedelta = WINDOW, *, lease: timedelta = LEASE, name: str = ""
    ) -> None:
        """
        Open the file at *path*, or create it; raises UnusableFile, StoreUnavailable.

        Receivers with the same *name*, such as that of their queue, share what is remembered.
        """
        if window <= timedelta() or lease <= timedelta():
            raise WrongUse(f"window and lease of a store: got {window} and {lease}, expected positive values")
        self._window = window.total_seconds()
        self.lease = lease
        self._name = name
        self._database = Database(path, _FILE)

    def __len__(self) -> int:
        """Return the number of remembered or claimed messages, including expired ones."""
        with self._database.reading() as connection:
            query = "SELECT count(*) FROM messages WHERE name = ?"
            return int(connection.execute(query, (self._name,)).fetchone()[0])

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, atomically, or return why it cannot be claimed."""
        claim = Claim(identity, uuid.uuid4().hex)
        with self._database.transaction() as connection:
            connection.execute(_FORGET, (now,))
            query = "SELECT is_done FROM messages WHERE name = ? AND identity = ? AND until > ?"
            if found := connection.execute(query, (self._name, identity, now)).fetchone():
                return State.DONE if found[0] else State.BUSY
            query = "INSERT OR REPLACE INTO messages VALUES (?, ?, ?, 0, ?)"
            connection.execute(query, (self._name, *claim, now + self.lease.total_seconds()))
        return claim

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim was processed; raises ClaimLost if the claim has expired."""
        query = f"UPDATE messages SET is_done = 1, until = ? WHERE {_HELD}"  # noqa: S608 - a constant
        with self._database.transaction() as connection:
            if not connection.execute(query, (now + self._window, self._name, *claim)).rowcount:
                raise self._lost(claim)

    def renew(self, claim: Claim, now: float) -> None:
        """Extend a claim by a lease from now; raises ClaimLost if it is no longer held."""
        query = f"UPDATE messages SET until = ? WHERE {_HELD} AND NOT is_done"  # noqa: S608 - a constant
        with self._database.transaction() as connection:
            if not connection.execute(query, (now + self.lease.total_seconds(), self._name, *claim)).rowcount:
                raise self._lost(claim)

    def release(self, claim: Claim) -> None:
        """Release a claim, so that another copy or delivery may be processed; do nothing if it has expired."""
        query = f"DELETE FROM messages WHERE {_HELD} AND NOT is_done"  # noqa: S608 - a constant
        with self._database.transaction() as connection:
            connection.execute(query, (self._name, *claim))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _lost(self, claim: Claim) -> ClaimLost:
        return ClaimLost(f"{self._database.path}, message {claim.identity}: its claim has expired")
