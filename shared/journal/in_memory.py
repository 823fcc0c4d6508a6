"""The journal of dry runs, in memory."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from shared.journal.log import LogJournal
from shared.protocols import Flush, Record, Recorded


class MemoryJournal(LogJournal):
    """Keeps the outcomes of messages, in place of log lines."""

    def __init__(self) -> None:
        """Start empty."""
        self.records: list[Record] = []

    def decided(self, records: Sequence[Record], batch_id: int) -> Flush:  # noqa: ARG002 - required by the protocol
        """Return a flush that keeps the records."""
        return partial(self._keep, records)

    async def recorded(self, since: datetime, now: datetime, timeout_seconds: float) -> Recorded:  # noqa: ARG002 - required by the protocol
        """Return nothing: a dry run has no earlier instance."""
        return Recorded({})

    async def _keep(self, records: Sequence[Record]) -> None:
        self.records += records
