"""A store on one machine: a SQLite file, used in one transaction at a time."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from shared.errors import TargetRefused, TargetUnavailable

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
