"""Blobs and documents in a SQLite file, for one machine."""

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from shared.errors import TargetRefused, TargetUnavailable
from shared.stores.blobs import Blob, Tail, TooLarge, Unchanged
from shared.stores.documents import Changed

PREFIX = "file:"
"""The prefix of an app setting that names a file instead of a storage account."""


class SqliteFile:
    """A file that is made at its first use, and whose writes are on the disk when they return."""

    def __init__(self, path: Path, tables: Sequence[str], what: str) -> None:
        """Create missing *tables*; errors say that the file should be one of *what*."""
        self.name = path.name
        self._path = path
        self._tables = tables
        self._what = what

    @property
    def is_there(self) -> bool:
        """Whether anything has been written yet."""
        return self._path.exists()

    async def do[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what *work* returns, done in a transaction; raises TargetUnavailable and TargetRefused."""
        return await asyncio.to_thread(self._done, work)

    def _make_private(self) -> None:
        """Create the file so that only its owner can read it; SQLite gives its side files the same mode."""
        # If it cannot be created, SQLite says why.
        with suppress(OSError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def _done[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._make_private()
        try:
            with closing(sqlite3.connect(self._path, autocommit=True)) as opened:
                # Begun as a reader, a transaction that comes to write fails at once where another one writes.
                opened.execute("BEGIN IMMEDIATE")
                for table in self._tables:
                    opened.execute(f"CREATE TABLE IF NOT EXISTS {table}")
                answer = work(opened)
                opened.execute("COMMIT")
                return answer
        except sqlite3.OperationalError as error:
            raise TargetUnavailable(f"{self.name}: {error.sqlite_errorname}") from error
        except sqlite3.DatabaseError as error:
            raise TargetRefused(f"{self.name}: is not a file of {self._what}, {error.sqlite_errorname}") from error


_BLOB_TABLES = [
    "blobs (name TEXT PRIMARY KEY, content BLOB)",
    "appended (name TEXT, start INTEGER, stop INTEGER, content BLOB, PRIMARY KEY (name, start))",
]
_DOCUMENT_TABLES = ["documents (name TEXT PRIMARY KEY, version INTEGER, content BLOB)"]


class FileBlobs:
    """Blobs in a SQLite file, whose version is the digest of the content, and documents, whose version is a number."""

    def __init__(self, path: Path, folder: str) -> None:
        """Use *folder* as a prefix of the names in the file, which is created at the first write."""
        self._file = SqliteFile(path, _BLOB_TABLES, "blobs")
        self._documents = SqliteFile(path, _DOCUMENT_TABLES, "documents")
        self._folder = folder
        self.url = f"{PREFIX}{path.name}/{folder}"

    async def write(self, name: str, content: bytes, content_type: str | None = None) -> None:  # noqa: ARG002 - a file has no content type
        """Write the row."""
        await self._file.do(
            lambda opened: opened.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?)", [self._key(name), content])
        )

    async def read(
        self, name: str, *, limit: int, known_version: str | None = None
    ) -> Blob | Unchanged | TooLarge | None:
        """Return the row's content."""
        query = "SELECT content FROM blobs WHERE name = ?"
        row = (
            await self._file.do(lambda opened: opened.execute(query, [self._key(name)]).fetchone())
            if self._file.is_there
            else None
        )
        if row is None:
            return None
        if len(row[0]) > limit:
            return TooLarge(len(row[0]))
        version = hashlib.sha256(row[0]).hexdigest()
        return Unchanged() if version == known_version else Blob(row[0], version)

    async def delete(self, name: str) -> None:
        """Delete the rows."""

        def deleted(opened: sqlite3.Connection) -> None:
            opened.execute("DELETE FROM blobs WHERE name = ?", [self._key(name)])
            opened.execute("DELETE FROM appended WHERE name = ?", [self._key(name)])

        await self._file.do(deleted)

    async def append(self, name: str, content: bytes) -> bool:
        """Add a row."""
        await self._file.do(
            lambda opened: opened.execute(
                "INSERT INTO appended SELECT ?, coalesce(max(stop), 0), coalesce(max(stop), 0) + ?, ?"
                " FROM appended WHERE name = ?",
                [self._key(name), len(content), content, self._key(name)],
            )
        )
        return True

    async def tail(self, name: str, position: int) -> Tail:
        """Return the rows from *position* on, at which one of them starts."""
        query = "SELECT content FROM appended WHERE name = ? AND start >= ? ORDER BY start"
        if not self._file.is_there:
            return Tail(b"", is_full=False)
        rows = await self._file.do(lambda opened: opened.execute(query, [self._key(name), position]).fetchall())
        return Tail(b"".join(row[0] for row in rows), is_full=False)

    async def names(self, prefix: str) -> list[str]:
        """Return the names of rows."""
        query = (
            "SELECT name FROM blobs WHERE substr(name, 1, ?1) = ?2"
            " UNION SELECT name FROM appended WHERE substr(name, 1, ?1) = ?2 ORDER BY name"
        )
        key = self._key(prefix)
        if not self._file.is_there:
            return []
        rows = await self._file.do(lambda opened: opened.execute(query, [len(key), key]).fetchall())
        return [row[0][len(self._key("")) :] for row in rows]

    async def read_all(self, name: str) -> Blob | None:
        """Return the content of a document."""
        return (
            await self._documents.do(lambda opened: self._document(opened, name)) if self._documents.is_there else None
        )

    async def write_version(self, name: str, content: bytes, version: str | None) -> str:
        """Write a document if it still has *version*."""
        return await self._documents.do(lambda opened: self._replace(opened, name, content, version))

    def _document(self, opened: sqlite3.Connection, name: str) -> Blob | None:
        row = opened.execute("SELECT content, version FROM documents WHERE name = ?", [self._key(name)]).fetchone()
        return None if row is None else Blob(row[0], str(row[1]))

    def _replace(self, opened: sqlite3.Connection, name: str, content: bytes, version: str | None) -> str:
        if version is None:
            number = 1
            done = opened.execute("INSERT OR IGNORE INTO documents VALUES (?, 1, ?)", [self._key(name), content])
        else:
            number = int(version) + 1
            done = opened.execute(
                "UPDATE documents SET version = ?, content = ? WHERE name = ? AND version = ?",
                [number, content, self._key(name), int(version)],
            )
        if done.rowcount != 1:
            raise Changed(f"document {name}: another process has replaced it")
        return str(number)

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}"
