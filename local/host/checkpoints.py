"""
How far a function has come in each partition of an event hub.

Azure keeps this in a blob container. Here it is kept in memory, as the local broker keeps its events in memory; or in
a file, where the events outlive the host.
"""

import json
from pathlib import Path
from typing import NamedTuple, Protocol

from shared.errors import ConfigError, Problem


class Partition(NamedTuple):
    """A partition of a hub as one consumer group of one connection sees it."""

    connection: str
    hub: str
    consumer_group: str
    partition_id: str


class Checkpoints(Protocol):
    """A store for the offset of the last event that a partition is done with."""

    def get(self, partition: Partition) -> str | None:
        """Return the offset, None before the first."""
        ...

    def set(self, partition: Partition, offset: str) -> None:
        """Store the offset."""
        ...


class MemoryCheckpoints:
    """Checkpoints that end with the host."""

    def __init__(self) -> None:
        """Start without any."""
        self._offsets: dict[Partition, str] = {}

    def get(self, partition: Partition) -> str | None:
        """Return the offset, None before the first."""
        return self._offsets.get(partition)

    def set(self, partition: Partition, offset: str) -> None:
        """Store the offset."""
        self._offsets[partition] = offset


class FileCheckpoints:
    """Checkpoints in a JSON file, replaced whole on every change."""

    def __init__(self, file: Path) -> None:
        """Read what is there; a ConfigError for a file that holds something else."""
        self._file = file
        self._offsets: dict[str, str] = {}
        if file.exists():
            try:
                self._offsets = {str(key): str(value) for key, value in json.loads(file.read_text()).items()}
            except (ValueError, AttributeError) as error:
                raise ConfigError([Problem(str(file), f"no checkpoints: {error}", "remove the file")]) from error

    def get(self, partition: Partition) -> str | None:
        """Return the offset, None before the first."""
        return self._offsets.get("/".join(partition))

    def set(self, partition: Partition, offset: str) -> None:
        """Store the offset."""
        self._offsets["/".join(partition)] = offset
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._offsets, indent=1))
        new.replace(self._file)
