"""
The SQLite file that holds the state of one namespace.

1. A content is stored once: copies of a message in several subscriptions refer to the same one. It is deleted some time
   after the last of them, together with others: deleting them one by one would double the cost of a completion.
2. The file is locked for as long as it is open. The lock ends with the process.
3. A file that is not ours, of another version, or damaged is never written to.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shared.errors import BuswayError

FILE_NAME: Final = "broker.sqlite"
VERSION: Final = 2
TABLES: Final = ("entities", "places", "messages", "contents", "message_ids", "sessions", "events")

_APPLICATION_ID: Final = 0x42575342  # "BWSB": distinguishes it from other SQLite files
_SCHEMA: Final = """
CREATE TABLE entities (key TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE places (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, last_number INTEGER NOT NULL) STRICT;
CREATE TABLE messages (
    place INTEGER NOT NULL, number INTEGER NOT NULL, content INTEGER NOT NULL, enqueue_number INTEGER NOT NULL,
    enqueued_time INTEGER NOT NULL, time_to_live INTEGER, delivery_count INTEGER NOT NULL, state INTEGER NOT NULL,
    PRIMARY KEY (place, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE contents (
    id INTEGER PRIMARY KEY, header BLOB NOT NULL, annotation_count INTEGER NOT NULL,
    message_id BLOB NOT NULL, session_id TEXT, partition_key TEXT, time_to_live INTEGER, scheduled_enqueue_time INTEGER,
    checksum INTEGER NOT NULL, annotations BLOB NOT NULL, bare BLOB NOT NULL,
    delivery_annotations BLOB NOT NULL DEFAULT x''
) STRICT;
CREATE TABLE message_ids (
    id INTEGER PRIMARY KEY, place INTEGER NOT NULL, message_id BLOB NOT NULL, seen_at INTEGER NOT NULL,
    UNIQUE (place, message_id)
) STRICT;
CREATE TABLE sessions (
    place INTEGER NOT NULL, session_id TEXT NOT NULL, state BLOB NOT NULL, updated_at INTEGER NOT NULL,
    PRIMARY KEY (place, session_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, place INTEGER NOT NULL, number INTEGER NOT NULL, offset INTEGER NOT NULL,
    enqueued_time INTEGER NOT NULL, annotation_count INTEGER NOT NULL, partition_key TEXT, checksum INTEGER NOT NULL,
    annotations BLOB NOT NULL, bare BLOB NOT NULL,
    UNIQUE (place, number)
) STRICT;
"""
# From the version before each to that version.
_UPGRADES: Final = {2: "ALTER TABLE contents ADD COLUMN delivery_annotations BLOB NOT NULL DEFAULT x''"}


class StorageError(BuswayError):
    """The folder with the broker's state cannot be used; the text names the file, the reason and the remedy."""


class Database:
    """An open database; its connection is for one thread at a time."""

    def __init__(self, folder: Path, *, is_synced: bool) -> None:
        """
        Open the database in *folder*, and create both if they do not exist; StorageError if that fails.

        With *is_synced* a commit returns when the data is on the disk. Otherwise it survives the end of the process,
        but the last commits may be lost when the machine fails.
        """
        self.path = folder / FILE_NAME
        self._check_format(folder)
        with self._errors("cannot be opened"):
            _create(folder, self.path)
            # The server is created in one thread and runs in another.
            self.connection = sqlite3.connect(self.path, timeout=0, autocommit=True, check_same_thread=False)
        try:
            self._prepare(is_synced=is_synced)
        except BaseException:
            self.connection.close()
            raise

    def _check_format(self, folder: Path) -> None:
        old = next(folder.glob("[0-9]*.log"), None)
        if old is not None:
            raise StorageError(
                f"{old}: the log format of an earlier version, which this version cannot read; delete the folder "
                f"{folder}, or choose another one"
            )

    def _prepare(self, *, is_synced: bool) -> None:
        with self._errors("cannot be opened"):
            # Exclusive: the first access locks the file, and the index of the log needs no shared memory.
            self.connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            application_id, version = self._value("PRAGMA application_id"), self._value("PRAGMA user_version")
            is_empty = self._value("SELECT count(*) FROM sqlite_schema") == 0
        if (application_id, is_empty) not in ((0, True), (_APPLICATION_ID, False)):
            raise StorageError(f"{self.path}: not a database of the broker; choose another folder, or delete the file")
        if not is_empty and not 1 <= version <= VERSION:
            raise StorageError(
                f"{self.path}: format version {version}, expected 1 to {VERSION}; use the version of the broker that "
                "wrote it, delete the folder, or choose another one"
            )
        with self._errors("cannot be opened"):
            self.connection.execute("PRAGMA journal_mode = WAL")
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
            if is_empty:
                marks = f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {VERSION};"
                self.connection.executescript(f"BEGIN IMMEDIATE; {marks} {_SCHEMA} COMMIT;")
            else:
                # A lock for writing from the start: a second broker fails here, not at its first message.
                steps = "".join(f"{_UPGRADES[each]};" for each in range(version + 1, VERSION + 1))
                self.connection.executescript(f"BEGIN IMMEDIATE; {steps} PRAGMA user_version = {VERSION}; COMMIT;")

    def transact(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """Commit what *write* does, all or nothing; StorageError if that fails."""
        with self._errors("cannot be written"):
            self.connection.execute("BEGIN")
            try:
                write(self.connection)
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Translate the errors of reading into a StorageError."""
        with self._errors("cannot be read"):
            yield self.connection

    def close(self) -> None:
        """Close the file and release its lock; what is not committed is lost."""
        with self._errors("cannot be closed"):
            self.connection.close()

    def _value(self, query: str) -> int:
        value: int = self.connection.execute(query).fetchone()[0]
        return value

    @contextmanager
    def _errors(self, problem: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(f"{self.path}: {self._reason(error, problem)}") from error
        except OSError as error:
            raise StorageError(f"{self.path}: {problem}: {error.strerror}") from error

    @staticmethod
    def _reason(error: sqlite3.Error, problem: str) -> str:
        # Errors that do not come from SQLite itself have no code.
        match getattr(error, "sqlite_errorcode", None):
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return "another broker uses this folder; stop it, or choose another folder"
            case sqlite3.SQLITE_NOTADB:
                return "not a database of the broker, or damaged; choose another folder, or delete the file"
            case code if code is not None and code & 0xFF == sqlite3.SQLITE_CORRUPT:
                return f"damaged ({error}); restore the folder from a copy, or delete it to start empty"
        return f"{problem}: {error}"


def _create(folder: Path, path: Path) -> None:
    # It may hold secrets: messages, and the keys of entities. SQLite gives its log the same mode.
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
