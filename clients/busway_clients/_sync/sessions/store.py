# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""The interface of a journal's store: rows with versions in partitions, and transactions within a partition."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from busway_clients.sessions.rows import Row, Write


class RowStore(Protocol):
    """
    Rows by partition and key.

    Every method raises JournalUnavailable if a retry may succeed, and JournalRefused if it cannot.
    """

    @property
    def name(self) -> str:
        """The store's name in errors; contains no secret."""

    def open(self) -> None:
        """Create the table if it does not exist."""

    def read(self, partition: str, keys: Sequence[str]) -> Sequence[Row]:
        """Return the existing rows of *keys*, and all rows whose property Open is 1."""

    def write(self, partition: str, writes: Sequence[Write]) -> Sequence[str]:
        """Write all (at most 100) or none, and return their new versions; raises Conflict."""

    def forget(self, before: datetime) -> int:
        """Delete rows that have a property Finished earlier than *before*; return their number."""

    def close(self) -> None:
        """Close connections."""
