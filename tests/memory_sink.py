"""A sink of the journal in memory."""

import asyncio
import gzip
import json
from typing import Any

from shared.clock import Clock
from shared.journal.record import Role
from shared.journal.sink import Stream
from shared.stores.blobs import Listed, Listing


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


class SharedSink(MemorySink):
    """Several instances write to it, in blobs by the hour of *clock*, and each can read what all have written."""

    def __init__(self, clock: Clock) -> None:
        """Start empty; *error* is raised to who reads, who waits for *seconds* before."""
        super().__init__()
        self.blobs: dict[str, bytes] = {}
        self.listings = 0
        self.read: list[tuple[str, int]] = []
        self.error: Exception | None = None
        self.seconds = 0.0
        self._clock = clock

    async def append(self, stream: Stream, member: bytes) -> None:
        """Keep *member*."""
        await super().append(stream, member)
        name = f"{self.folder(stream)}{self.instance}.jsonl.gz"
        self.blobs[name] = self.blobs.get(name, b"") + member

    def folder(self, stream: Stream) -> str:
        """Return where the records of the present hour are."""
        return f"task={stream.task}/{self._clock.now():date=%Y-%m-%d/hour=%H}/role={stream.role}/"

    def container(self) -> "SharedSink":
        """Return itself."""
        return self

    async def folders(self, prefix: str) -> list[str]:
        """Return nothing."""
        return [prefix]

    async def listed(self, prefix: str) -> Listing:
        """Return the blobs that start with *prefix*; the later ones were written later."""
        await asyncio.sleep(self.seconds)
        self.listings += 1
        if self.error is not None:
            raise self.error
        found = [(name, content) for name, content in self.blobs.items() if name.startswith(prefix)]
        return Listing([Listed(name, self._clock.now(), len(content)) for name, content in found], None)

    async def part(self, name: str, position: int, length: int) -> bytes:
        """Return a part of a blob."""
        self.read.append((name, position))
        return self.blobs[name][position : position + length]
