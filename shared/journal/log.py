"""The journal as log lines: one for every message that was withheld or rejected."""

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from shared.message.message import Message
from shared.printable import json_line
from shared.protocols import Entry, Flush, Imprint, Outcome, Record, Recorded

_GOING_ON = (Outcome.SENT, Outcome.RETRY)
_HEARTBEAT_STAGE = "received"

_LOGGER = logging.getLogger("busway.journal")


class LogJournal:
    """
    Writes withheld and rejected messages to the application's log, one JSON object per line.

    Messages that are retried are logged as a batch, with its error.
    """

    def arriving(self, message: Message) -> Imprint | None:  # noqa: ARG002 - required by the protocol
        """Do nothing: only withheld messages are logged."""
        return None

    def unreadable(self, content: bytes) -> Imprint | None:  # noqa: ARG002 - required by the protocol
        """Do nothing: only withheld messages are logged."""
        return None

    def departing(self, message: Message, arrived: Imprint) -> Imprint:  # noqa: ARG002 - required by the protocol
        """Do nothing: only withheld messages are logged."""
        return arrived

    def received(self, entries: Sequence[Entry], batch_id: int) -> Flush:  # noqa: ARG002 - required by the protocol
        """Do nothing: only withheld messages are logged."""
        return _nothing

    def decided(self, records: Sequence[Record], batch_id: int) -> Flush:  # noqa: ARG002 - required by the protocol
        """Log every record of a message that was withheld or rejected."""
        return partial(_logged, records)

    async def recorded(self, since: datetime, now: datetime, timeout_seconds: float) -> Recorded:  # noqa: ARG002 - required by the protocol
        """Return nothing: what other instances have logged cannot be read."""
        return Recorded({}, "the task has no journal that can be read")


def log_withheld(records: Sequence[Record]) -> None:
    """Log every record of a message that was withheld or rejected, except heartbeats."""
    for record in records:
        if record.outcome in _GOING_ON:
            continue
        # Nothing else is filtered before the editors.
        if record.outcome is not Outcome.FILTERED or record.stage != _HEARTBEAT_STAGE:
            _LOGGER.warning("%s", json_line(_fields(record)))


async def _logged(records: Sequence[Record]) -> None:
    log_withheld(records)


async def _nothing() -> None:
    pass


def _fields(record: Record) -> dict[str, object]:
    arrival = record.arrival
    return {
        "task": record.task,
        "outcome": record.outcome,
        "site": arrival.origin.site,
        "entity": arrival.origin.entity,
        "sequence_number": arrival.sequence_number,
        "message_id": record.message_id,
        "target": record.target,
        "reason": record.reason,
    }
