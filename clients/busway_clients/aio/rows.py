"""Rows with versions in partitions, with transactions within a partition; and a store of them in a SQLite file."""

import json
import os
import sqlite3
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from busway_clients.concurrency.tasks import threaded
from busway_clients.database import Database, Kind
from busway_clients.errors import Conflict, UnusableFile
from busway_clients.rows import ANY, Row, Write

_KIND = Kind(
    "rows of busway_clients",
    application_id=0x62776A6E,
    version=1,
    schema="CREATE TABLE IF NOT EXISTS rows (partition TEXT, key TEXT, version INTEGER NOT NULL, open INTEGER NOT NULL,"
    " finished TEXT, properties TEXT NOT NULL, PRIMARY KEY (partition, key)) WITHOUT ROWID;"
    " CREATE INDEX IF NOT EXISTS ends ON rows (finished) WHERE finished IS NOT NULL",
)


class RowStore(Protocol):
    """
    Rows by partition and key.

    Every method raises StoreUnavailable if a retry may succeed, and StoreRefused if it cannot.
    """

    @property
    def name(self) -> str:
        """The store's name in errors; contains no secret."""

    async def open(self) -> None:
        """Create the table if it does not exist."""

    async def read(self, partition: str, keys: Sequence[str], *, with_open: bool = True) -> Sequence[Row]:
        """
        Return the existing rows of *keys*, and *with_open* all rows whose property Open is 1.

        A table finds the rows of keys by an index, and open ones by looking at all rows of the partition.
        """

    async def write(self, partition: str, writes: Sequence[Write]) -> Sequence[str]:
        """Write all (at most 100) or none, and return their new versions; raises Conflict."""

    async def forget(self, before: datetime, partitions: str = "") -> int:
        """
        Delete rows that have a property Finished earlier than *before*; return their number.

        Only partitions whose name starts with *partitions* are searched.
        """

    async def close(self) -> None:
        """Close connections."""


class SqliteStore:
    """A store of rows in the file *path*; any number of threads and processes of one machine may have it open."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._opened: Database | None = None
        self._opening = threading.Lock()

    @property
    def name(self) -> str:
        """The file's path."""
        return self._path

    @threaded
    def open(self) -> None:
        """Create the table if it does not exist."""
        self._database()

    @threaded
    def read(self, partition: str, keys: Sequence[str], *, with_open: bool = True) -> Sequence[Row]:
        """Return the existing rows of *keys*, and *with_open* all whose property Open is 1."""
        chosen = f"key IN ({','.join('?' * len(keys))})" + (" OR open = 1" if with_open else "")
        query = f"SELECT key, properties, version FROM rows WHERE partition = ? AND ({chosen})"  # noqa: S608 - question marks alone
        with self._database().reading() as connection:
            found = connection.execute(query, (partition, *keys)).fetchall()
        try:
            return [Row(key, json.loads(properties), str(version)) for key, properties, version in found]
        except ValueError as error:
            raise UnusableFile(f"{self.name}: partition {partition} has a row that is not JSON") from error

    @threaded
    def write(self, partition: str, writes: Sequence[Write]) -> Sequence[str]:
        """Write all or none, and return their new versions; raises Conflict."""
        with self._database().transaction() as connection:
            return [self._write(connection, partition, write) for write in writes]

    @threaded
    def forget(self, before: datetime, partitions: str = "") -> int:
        """Delete rows of these partitions that have a property Finished earlier than *before*; return their number."""
        values = (before.astimezone(UTC).isoformat(), len(partitions), partitions)
        chosen = "SELECT partition, key FROM rows WHERE finished < ? AND substr(partition, 1, ?) = ? LIMIT 1000"
        count = 0
        while True:
            # In small transactions, since other processes wait.
            with self._database().transaction() as connection:
                query = f"DELETE FROM rows WHERE (partition, key) IN ({chosen})"  # noqa: S608 - a constant
                deleted = connection.execute(query, values).rowcount
            if not deleted:
                return count
            count += deleted

    @threaded
    def close(self) -> None:
        """Let go of connections."""
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _write(self, connection: sqlite3.Connection, partition: str, write: Write) -> str:
        found = connection.execute(
            "SELECT version FROM rows WHERE partition = ? AND key = ?", (partition, write.key)
        ).fetchone()
        present = None if found is None else str(found[0])
        if write.expected not in (ANY, present):
            raise Conflict(f"{self.name}: {partition}/{write.key} has version {present}, expected {write.expected}")
        version = 1 if found is None else found[0] + 1
        connection.execute(
            "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?)",
            (
                partition,
                write.key,
                version,
                write.properties.get("Open", 0),
                write.properties.get("Finished"),
                json.dumps(dict(write.properties)),
            ),
        )
        return str(version)

    def _database(self) -> Database:
        with self._opening:
            if self._opened is None:
                self._opened = Database(self._path, _KIND)
            return self._opened
