"""
The progress of a function in each partition of an event hub.

Azure stores it in a blob container. This host keeps it in memory, as the local broker keeps its events, or in a file
for events that outlive the host.
"""

import json
from pathlib import Path
from typing import NamedTuple

from shared.errors import ConfigError, Problem
from shared.private_file import write_private


class Partition(NamedTuple):
    """A partition of a hub for one consumer group of one connection."""

    connection: str
    hub: str
    consumer_group: str
    partition_id: str


class Checkpoints:
    """The offset of the last processed event of each partition."""

    def __init__(self, file: Path | None = None) -> None:
        """Read the file, if it exists; a ConfigError if it has other content. Without a file they end with the host."""
        self._file = file
        self._offsets: dict[str, str] = {}
        if file is not None and file.exists():
            try:
                self._offsets = {str(key): str(value) for key, value in json.loads(file.read_text()).items()}
            except (ValueError, AttributeError) as error:
                raise ConfigError([Problem(str(file), f"no checkpoints: {error}", "remove the file")]) from error

    def get(self, partition: Partition) -> str | None:
        """Return the offset, None before the first."""
        return self._offsets.get("/".join(partition))

    def set(self, partition: Partition, offset: str) -> None:
        """Store the offset; the file is replaced on every change."""
        self._offsets["/".join(partition)] = offset
        if self._file is not None:
            new = self._file.with_suffix(".new")
            write_private(new, json.dumps(self._offsets, indent=1))
            new.replace(self._file)
