"""A journal in a SQLite file, for asyncio: each request runs in a thread."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from busway_clients.sessions import sqlite
from busway_clients.sessions.rows import Row, Write


class SqliteStore:
    """An AsyncRowStore in the file *path*; see `busway_clients.sessions.SqliteStore`."""

    def __init__(self, path: Path | str) -> None:
        self._store = sqlite.SqliteStore(path)

    @property
    def name(self) -> str:
        """The file's path."""
        return self._store.name

    async def open(self) -> None:
        """Create the table if it does not exist."""
        await asyncio.to_thread(self._store.open)

    async def read(self, partition: str, keys: Sequence[str]) -> list[Row]:
        """Return the existing rows of *keys*, and all whose property Open is 1."""
        return await asyncio.to_thread(self._store.read, partition, keys)

    async def write(self, partition: str, writes: Sequence[Write]) -> list[str]:
        """Write all or none, and return their new versions; raises Conflict."""
        return await asyncio.to_thread(self._store.write, partition, writes)

    async def forget(self, before: datetime) -> int:
        """Delete rows that have a property Finished earlier than *before*; return their number."""
        return await asyncio.to_thread(self._store.forget, before)

    async def close(self) -> None:
        """Let go of connections."""
        await asyncio.to_thread(self._store.close)
