"""The journal of dry runs, in memory."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from shared.message.message import Message
from shared.protocols import Entry, Flush, Imprint, Record, Recorded


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

    async def recorded(self, since: datetime, now: datetime, timeout_seconds: float) -> Recorded:  # noqa: ARG002 - required by the protocol
        """Return nothing: a dry run has no earlier instance."""
        return Recorded({})

    async def _keep(self, records: Sequence[Record]) -> None:
        self.records += records
