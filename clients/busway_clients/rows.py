"""Rows of a store: what journals, claims and roles are kept in, in a file or a table."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from busway_clients.errors import StoreRefused

Properties: TypeAlias = Mapping[str, str | int | float]

ANY = "*"
"""The expected version of a row that is written unconditionally."""


@dataclass(frozen=True)
class Row:
    """A row as it was read; *version* is set by the store and changes with every write."""

    key: str
    properties: Properties
    version: str

    def require(self, names: Collection[str], where: str) -> None:
        """Raise StoreRefused unless the row has properties of these *names*."""
        if not self.properties.keys() >= {*names}:
            expected = f"expected {', '.join(sorted(names))}; use a store that nothing else writes to"
            raise StoreRefused(f"{where}: row {self.key} has another schema, {expected}")


@dataclass(frozen=True)
class Write:
    """A row to write; *expected* is its required current version, None if the row must not exist, or ANY."""

    key: str
    properties: Properties
    expected: str | None = ANY
