"""The rows of a journal's store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

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
