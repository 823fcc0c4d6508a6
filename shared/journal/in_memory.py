"""Journals in memory, for tests and dry runs."""

import gzip
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from shared.journal.record import Role
from shared.journal.sink import Stream
from shared.message.message import Message
from shared.protocols import Entry, Flush, Imprint, Record


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


class MemoryJournal:
    """Keeps the outcomes of messages, without records of their receipt."""

    def __init__(self) -> None:
        """Start empty."""
        self.records: list[Record] = []

    def arriving(self, message: Message) -> Imprint | None:  # noqa: ARG002 - required by the protocol
        """Do nothing: only outcomes are kept."""
        return None

    def unreadable(self, content: bytes) -> Imprint | None:  # noqa: ARG002 - required by the protocol
        """Do nothing: only outcomes are kept."""
        return None

    def departing(self, message: Message, arrived: Imprint) -> Imprint:  # noqa: ARG002 - required by the protocol
        """Do nothing: only outcomes are kept."""
        return arrived

    def received(self, entries: Sequence[Entry], batch_id: int) -> Flush:  # noqa: ARG002 - required by the protocol
        """Do nothing: only outcomes are kept."""
        return partial(self._keep, ())

    def decided(self, records: Sequence[Record], batch_id: int) -> Flush:  # noqa: ARG002 - required by the protocol
        """Return a flush that keeps the records."""
        return partial(self._keep, records)

    async def _keep(self, records: Sequence[Record]) -> None:
        self.records += records
