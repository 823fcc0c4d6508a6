"""A file: for the processes of one machine, and over their restarts."""

import os
import uuid
from datetime import timedelta

from busway_clients.database import Database, Kind
from busway_clients.errors import ClaimLost, WrongUse
from busway_clients.receivers.stores.memory import WINDOW
from busway_clients.receivers.stores.store import Claim, State

LEASE = timedelta(minutes=1)
_FILE = Kind(
    "the memory of a de-duplicating receiver",
    0x42574452,
    1,
    """
    CREATE TABLE IF NOT EXISTS messages (
        identity TEXT PRIMARY KEY,
        token TEXT NOT NULL,
        is_done INTEGER NOT NULL,
        until REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS ends ON messages (until)
    """,
)
# Of those that have ended, so many with each claim: more than come, little enough to cost nothing.
_FORGET = "DELETE FROM messages WHERE identity IN (SELECT identity FROM messages WHERE until <= ? LIMIT 5)"


class SqliteStore:
    """
    Remembers for *window* what was processed, in a file that the processes of one machine may share.

    A claim that is not renewed lasts for *lease*; receivers renew it while the application works. After it another copy
    may be processed, since whoever had claimed it has died or cannot reach the file.
    """

    is_local = False

    def __init__(self, path: str | os.PathLike[str], window: timedelta = WINDOW, *, lease: timedelta = LEASE) -> None:
        """Open the file at *path*, or make it; raises UnusableFile, StoreUnavailable."""
        if window <= timedelta() or lease <= timedelta():
            raise WrongUse(f"the window and lease of a store: are {window} and {lease}, expected positive ones")
        self._window = window.total_seconds()
        self.lease = lease
        self._database = Database(path, _FILE)

    def __len__(self) -> int:
        """Return how many messages are remembered or claimed, those whose time has ended among them."""
        with self._database.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM messages").fetchone()[0])

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, of all who ask one at a time; or say why not."""
        claim = Claim(identity, uuid.uuid4().hex)
        with self._database.transaction() as connection:
            connection.execute(_FORGET, (now,))
            query = "SELECT is_done FROM messages WHERE identity = ? AND until > ?"
            if found := connection.execute(query, (identity, now)).fetchone():
                return State.DONE if found[0] else State.BUSY
            query = "INSERT OR REPLACE INTO messages VALUES (?, ?, 0, ?)"
            connection.execute(query, (identity, claim.token, now + self.lease.total_seconds()))
        return claim

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim has been processed; raises ClaimLost where the claim has run out."""
        query = "UPDATE messages SET is_done = 1, until = ? WHERE identity = ? AND token = ?"
        with self._database.transaction() as connection:
            if not connection.execute(query, (now + self._window, *claim)).rowcount:
                raise self._lost(claim)

    def renew(self, claim: Claim, now: float) -> None:
        """Let a claim last for another lease from now; raises ClaimLost where it is held no more."""
        query = "UPDATE messages SET until = ? WHERE identity = ? AND token = ? AND NOT is_done"
        with self._database.transaction() as connection:
            if not connection.execute(query, (now + self.lease.total_seconds(), *claim)).rowcount:
                raise self._lost(claim)

    def release(self, claim: Claim) -> None:
        """Give a claim back, so that another copy or delivery may be processed; nothing if it has run out."""
        query = "DELETE FROM messages WHERE identity = ? AND token = ? AND NOT is_done"
        with self._database.transaction() as connection:
            connection.execute(query, claim)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _lost(self, claim: Claim) -> ClaimLost:
        return ClaimLost(f"{self._database.path}, message {claim.identity}: its claim has run out")
