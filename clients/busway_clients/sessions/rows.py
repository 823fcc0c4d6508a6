"""The interface of a journal's store: rows with versions in partitions, and transactions within a partition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

Properties: TypeAlias = Mapping[str, str | int]

ANY = "*"
"""The expected version of a row that is written unconditionally."""


@dataclass(frozen=True)
class Row:
    """A row as it was read; *version* is set by the store and changes with every write."""

    key: str
    properties: Properties
    version: str


@dataclass(frozen=True)
class Write:
    """A row to write; *expected* is its required current version, None if the row must not exist, or ANY."""

    key: str
    properties: Properties
    expected: str | None = ANY


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


class AsyncRowStore(Protocol):
    """A RowStore whose methods are awaited."""

    @property
    def name(self) -> str:
        """The store's name in errors; contains no secret."""

    async def open(self) -> None:
        """As RowStore.open."""

    async def read(self, partition: str, keys: Sequence[str]) -> Sequence[Row]:
        """As RowStore.read."""

    async def write(self, partition: str, writes: Sequence[Write]) -> Sequence[str]:
        """As RowStore.write."""

    async def forget(self, before: datetime) -> int:
        """As RowStore.forget."""

    async def close(self) -> None:
        """As RowStore.close."""
