"""A store in a SQLite file, shared by the processes of one machine and kept when they restart."""

import os
import uuid
from datetime import timedelta

from busway_clients.database import Database, Kind
from busway_clients.errors import ClaimLost, WrongUse
from busway_clients.receivers.stores.in_memory import WINDOW
from busway_clients.receivers.stores.store import Claim, State

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
