"""The journal as log lines: one for every message that did not go where it was meant to."""

import json
import logging
from collections.abc import Sequence

from shared.protocols import Outcome, Record

_LOGGER = logging.getLogger("busway.journal")


class LogJournal:
    """Writes withheld and rejected messages to the application's log, one JSON object a line."""

    async def write(self, records: Sequence[Record]) -> None:
        """Log every record whose message was not sent."""
        for record in records:
            if record.outcome is not Outcome.SENT:
                _LOGGER.warning("%s", json.dumps(_fields(record), ensure_ascii=False))


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
