"""The roles of namespaces (active or backup), kept in one process or shared by several."""

import os
import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from busway_clients._sync.rows import RowStore, SqliteStore
from busway_clients.errors import ClientsError, Conflict
from busway_clients.rows import Properties, Row, Write

_PARTITION = "roles"


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
        """Return the roles, None if none are set; raises StoreUnavailable."""

    def replace(self, expected: int, order: Sequence[str]) -> Roles:
        """
        Set the order if the version is still *expected* (0 if none is set), and return the current roles.

        Raises StoreUnavailable.
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


class StoredRoles:
    """Roles in one row of a store, whose version is the lock."""

    is_local = False

    def __init__(self, rows: RowStore, name: str) -> None:
        """Store the roles that all senders with the same *name* share."""
        self._rows = rows
        self._name = name

    def read(self) -> Roles | None:
        """Return the roles."""
        return self._held()[1]

    def replace(self, expected: int, order: Sequence[str]) -> Roles:
        """Set the order if the version is still *expected*, and return the current roles."""
        row, held = self._held()
        if held is not None and held.version != expected:
            return held
        roles = Roles(tuple(order), expected + 1)
        properties: Properties = {"order": "\n".join(order), "version": roles.version}
        try:
            self._rows.write(_PARTITION, [Write(self._name, properties, None if row is None else row.version)])
        except Conflict:
            # Another process was first.
            return self.read() or roles
        return roles

    def close(self) -> None:
        """Close the store."""
        self._rows.close()

    def _held(self) -> tuple[Row | None, Roles | None]:
        for row in self._rows.read(_PARTITION, [self._name], with_open=False):
            row.require({"order", "version"}, f"{self._rows.name}, roles")
            return row, Roles(tuple(str(row.properties["order"]).split("\n")), int(row.properties["version"]))
        return None, None


class FileRoles(StoredRoles):
    """Roles of the processes of one machine, in a SQLite file."""

    def __init__(self, path: str | os.PathLike[str], name: str = "sender") -> None:
        """Keep the roles in the file at *path*, under a *name*; raises StoreUnavailable."""
        super().__init__(SqliteStore(path), name)
        self._rows.open()
