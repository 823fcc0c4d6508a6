"""SQLite files of this package: each is marked with its kind and version, and every commit is durable."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from busway_clients.errors import StoreRefused, StoreUnavailable, UnusableFile

_BUSY_SECONDS = 5.0
_AGAIN_SECONDS = 0.01
_PASSING = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR")


class Kind(NamedTuple):
    """
    A kind of file.

    Shape:  application_id marks the kind, version its schema; schema has the statements that create it.
    """

    name: str
    application_id: int
    version: int
    schema: str


class Database:
    """
    A file of one kind, created for its owner only if it does not exist; every commit is on disk when it returns.

    Safe to use from several threads. With *is_exclusive*, no other object can open the file until this one is closed.
    """

    def __init__(self, path: str | os.PathLike[str], kind: Kind, *, is_exclusive: bool = False) -> None:
        """Open the file; raises UnusableFile for another kind or version, StoreUnavailable if it cannot be opened."""
        self.path = os.fspath(path)
        self._lock = threading.RLock()
        with self._translated():
            _create(self.path)
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
        # In one transaction, since another process may be creating the file.
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
            # Another process may have created the tables in the meantime, hence IF NOT EXISTS in each schema.
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
                # SQLite's own timeout does not apply here while another process changes the mode too.
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
                time.sleep(_AGAIN_SECONDS)
            else:
                return

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Return the connection inside a transaction, which is rolled back on an exception."""
        with self._lock, self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                # The file itself may have failed.
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Return the connection for reading."""
        with self._lock, self._translated():
            yield self._connection

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            passes = getattr(error, "sqlite_errorname", "").startswith(_PASSING)
            raise (StoreUnavailable if passes else StoreRefused)(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise UnusableFile(f"{self.path}: {error}, expected a database of this package") from error


def _create(path: str) -> None:
    # It may hold bodies of messages and results of the application. SQLite gives its log the same mode.
    if path != ":memory:":
        # Not opened if it exists: closing it here would release the locks of this process's other connections. If it
        # cannot be created, SQLite reports why.
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
