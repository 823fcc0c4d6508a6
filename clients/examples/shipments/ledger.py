"""What a consumer's work ends in: a system that applies statuses of shipments, here a SQLite file."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

PATH = Path("build/shipments.db")
SECONDS_A_STATUS = 0.1
"""It is an old system, and slow."""


class Applied(NamedTuple):
    """A status as it was applied."""

    shipment: str
    number: int
    site: str


class Ledger:
    """
    Applies statuses and counts everything that it is asked for.

    Of each shipment it remembers the highest token that it has seen, and refuses what a worker with a lower one wants:
    that worker was overtaken and does not know it yet.
    """

    def __init__(self, path: Path = PATH) -> None:
        path.parent.mkdir(exist_ok=True)
        self._rows = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._using = threading.Lock()
        self._rows.execute("PRAGMA journal_mode = WAL")
        self._rows.execute("CREATE TABLE IF NOT EXISTS applied (shipment TEXT, number INTEGER, site TEXT)")
        self._rows.execute("CREATE TABLE IF NOT EXISTS tokens (shipment TEXT PRIMARY KEY, token INTEGER)")
        self._rows.execute("CREATE TABLE IF NOT EXISTS found (shipment TEXT, number INTEGER)")

    def apply(self, shipment: str, number: int, site: str, token: int) -> None:
        """Apply a status; raises RuntimeError for a worker that was overtaken."""
        time.sleep(SECONDS_A_STATUS)
        with self._using, closing(self._rows.execute("BEGIN IMMEDIATE")), self._rows:
            found = self._rows.execute("SELECT token FROM tokens WHERE shipment = ?", (shipment,)).fetchone()
            if found is not None and found[0] > token:
                raise RuntimeError(f"{shipment}: token {token} was overtaken by {found[0]}")
            self._rows.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?)", (shipment, token))
            self._rows.execute("INSERT INTO applied VALUES (?, ?, ?)", (shipment, number, site))

    def has(self, shipment: str, number: int) -> bool:
        """Whether a status was applied already; for a message that a worker may have been killed over."""
        query = "SELECT 1 FROM applied WHERE shipment = ? AND number = ?"
        with self._using:
            is_there = self._rows.execute(query, (shipment, number)).fetchone() is not None
            if is_there:
                self._rows.execute("INSERT INTO found VALUES (?, ?)", (shipment, number))
        return is_there

    def applied(self) -> list[Applied]:
        """Return all that was applied, in the order in which it was."""
        return [Applied(*row) for row in self._rows.execute("SELECT * FROM applied ORDER BY rowid")]

    def found(self) -> int:
        """Return how often a status was not applied because it had been."""
        [count] = self._rows.execute("SELECT count(*) FROM found").fetchone()
        return int(count)
