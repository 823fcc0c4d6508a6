"""A sink of the journal in memory."""

import gzip
import json
from typing import Any

from shared.journal.record import Role
from shared.journal.sink import Stream


class MemorySink:
    """Keeps the members of each stream."""

    def __init__(self, instance: str = "memory-0") -> None:
        """Start empty."""
        self.instance = instance
        self.members: dict[Stream, list[bytes]] = {}

    async def append(self, stream: Stream, member: bytes) -> None:
        """Keep *member*."""
        self.members.setdefault(stream, []).append(member)

    async def close(self) -> None:
        """Do nothing."""

    def records(self, task: str, role: Role) -> list[dict[str, Any]]:
        """Return the records of one side of a task, in the order in which they were written."""
        lines = b"".join(map(gzip.decompress, self.members.get(Stream(task, role), []))).splitlines()
        return [json.loads(line) for line in lines]
