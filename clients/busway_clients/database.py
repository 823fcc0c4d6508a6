"""SQLite files of this package: each says what it is and of which version, and keeps what was committed."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from busway_clients.errors import StoreUnavailable, UnusableFile

_BUSY_SECONDS = 5.0
_AGAIN_SECONDS = 0.01


class Kind(NamedTuple):
    """
    What a file is for.

    Shape:  application_id marks files of the kind, version those of one schema; schema is the statements that make
            one.
    """

    name: str
    application_id: int
    version: int
    schema: str


class Database:
    """
    A file of one kind, created if it does not exist; every commit is on the disk when it returns.

    May be used from several threads. With *is_exclusive* it belongs to this object until it is closed or its process
    ends.
    """

    def __init__(self, path: str | os.PathLike[str], kind: Kind, *, is_exclusive: bool = False) -> None:
        """Open the file; raises UnusableFile for one of another kind or version, StoreUnavailable for one in use."""
        self.path = os.fspath(path)
        self._turn = threading.RLock()
        with self._translated():
            self._connection = sqlite3.connect(
                self.path, timeout=0 if is_exclusive else _BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._translated():
                self._prepare(kind, is_exclusive)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, kind: Kind, is_exclusive: bool) -> None:
        # Exclusive before the first access in WAL mode: the lock is taken with it, and no shared memory is needed.
        if is_exclusive:
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        # In one view of the file, as another process may be making it.
        self._connection.execute("BEGIN")
        held = [self._pragma("application_id"), self._pragma("user_version")]
        is_new = held == [0, 0] and not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        self._connection.execute("COMMIT")
        if not is_new and held[0] != kind.application_id:
            raise UnusableFile(f"{self.path}: is a database of another kind, expected {kind.name}")
        if not is_new and held[1] != kind.version:
            raise UnusableFile(f"{self.path}: has version {held[1]} of {kind.name}, expected {kind.version}")
        self._log_ahead(patience=0 if is_exclusive else _BUSY_SECONDS)
        self._connection.execute("PRAGMA synchronous = FULL")
        with self.transaction() as connection:
            # Another process may have made it meanwhile, hence IF NOT EXISTS in each schema.
            for statement in kind.schema.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {kind.application_id}")
            connection.execute(f"PRAGMA user_version = {kind.version}")

    def _log_ahead(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                # SQLite does not wait by itself here while another process does the same.
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
                time.sleep(_AGAIN_SECONDS)
            else:
                return

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection inside a transaction, which is committed unless something is raised."""
        with self._turn, self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                # The file may be what has failed.
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Give the connection for statements that change nothing."""
        with self._turn, self._translated():
            yield self._connection

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise UnusableFile(f"{self.path}: {error}, expected a database of this package") from error
