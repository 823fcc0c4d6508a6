"""The roles of namespaces (active or backup), kept in one process or shared by several."""

import json
import os
import sqlite3
import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from busway_clients.database import Database, Kind
from busway_clients.errors import ClientsError


class Roles(NamedTuple):
    """The namespaces, the active one first; the version grows with every change."""

    order: tuple[str, ...]
    version: int

    @property
    def active(self) -> str:
        """Return the active namespace."""
        return self.order[0]

    @property
    def backups(self) -> tuple[str, ...]:
        """Return the other namespaces, in the order in which they are tried."""
        return self.order[1:]


class RoleState(NamedTuple):
    """
    The roles that a sender or client uses.

    Shape:  is_agreed is false while the role store is unavailable; error has the reason.
    """

    active: str
    backups: tuple[str, ...]
    is_agreed: bool = True
    error: ClientsError | None = None


class RoleStore(Protocol):
    """
    A store of roles.

    A local one answers at once and cannot fail. Asynchronous senders read any other in a thread, and read it again only
    when its last answer is too old.
    """

    @property
    def is_local(self) -> bool:
        """Whether the roles are in this process."""

    def read(self) -> Roles | None:
        """Return the roles, None if none are set; raises StoreUnavailable or UnusableFile."""

    def replace(self, expected: int, order: Sequence[str]) -> Roles:
        """
        Set the order if the version is still *expected* (0 if none is set), and return the current roles.

        Raises StoreUnavailable or UnusableFile.
        """


class MemoryRoles:
    """Roles of one process."""

    is_local = True

    def __init__(self) -> None:
        self._roles: Roles | None = None
        self._lock = threading.Lock()

    def read(self) -> Roles | None:
        """Return the roles."""
        return self._roles

    def replace(self, expected: int, order: Sequence[str]) -> Roles:
        """Set the order if the version is still *expected*, and return the current roles."""
        with self._lock:
            if self._roles is None or self._roles.version == expected:
                self._roles = Roles(tuple(order), expected + 1)
            return self._roles


class FileRoles:
    """Roles of the processes of one machine, in a SQLite file."""

    is_local = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Keep the roles in the file at *path*; raises UnusableFile, StoreUnavailable."""
        self._database = Database(path, _FILE)

    def read(self) -> Roles | None:
        """Return the roles."""
        with self._database.reading() as connection:
            return self._held(connection)

    def replace(self, expected: int, order: Sequence[str]) -> Roles:
        """Set the order if the version is still *expected*, and return the current roles."""
        with self._database.transaction() as connection:
            held = self._held(connection)
            if held is not None and held.version != expected:
                return held
            roles = Roles(tuple(order), expected + 1)
            connection.execute("DELETE FROM roles")
            connection.execute("INSERT INTO roles VALUES (?, ?)", (roles.version, json.dumps(roles.order)))
            return roles

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _held(self, connection: sqlite3.Connection) -> Roles | None:
        row = connection.execute("SELECT version, names FROM roles").fetchone()
        return None if row is None else Roles(tuple(json.loads(row[1])), row[0])


_FILE = Kind(
    "the roles of a passive sender",
    0x42575230,
    1,
    "CREATE TABLE IF NOT EXISTS roles (version INTEGER NOT NULL, names TEXT NOT NULL)",
)
