"""
A log line for each batch: a sentence for people, then its fields as JSON for queries.

The Functions worker passes the host the text of a record without its `extra`, so the fields are in the text as well.
Handlers that see `extra` find them there under the same names.
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from shared.errors import BuswayError
from shared.protocols import BatchReport
from shared.telemetry import names
from shared.telemetry.names import outcome_of

_LOGGER = logging.getLogger("busway.batch")


class BatchLog:
    """Logs the batches of one task."""

    def __init__(self, task: str) -> None:
        """Start each line with the name of the *task*."""
        self._task = task

    def in_hand(self, size: int, oldest: int | None) -> AbstractContextManager[None]:  # noqa: ARG002 - not logged
        """Do nothing: the log has what is finished."""
        return nullcontext()

    def unwritten(self, records: int) -> None:
        """Do nothing: the journal has logged it."""

    def outage(self, place: str, error: BuswayError | None) -> None:
        """Do nothing: `shared.line.outages` has logged it."""

    def batch(self, report: BatchReport) -> None:
        """Log one line for the batch."""
        if not _LOGGER.isEnabledFor(logging.INFO) or report.has_only_heartbeats:
            return
        outcomes = Counter(map(outcome_of, report.messages))
        fields = _fields(self._task, report, outcomes)
        _LOGGER.info(
            "%s: %d messages in %.0f ms: %s. %s",
            self._task,
            report.size,
            report.seconds * 1000,
            ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "nothing",
            json.dumps(fields, ensure_ascii=False),
            extra=fields,
        )


def _fields(task: str, report: BatchReport, outcomes: Mapping[str, int]) -> dict[str, object]:
    enqueued = [time for message in report.messages if (time := message.arrival.enqueued_time) is not None]
    ended = report.started.timestamp() + report.seconds
    fields: dict[str, object] = {
        names.TASK: task,
        names.SOURCE: f"{report.origin.site}/{report.origin.entity}",
        names.PARTITION: report.origin.partition,
        names.BATCH_SIZE.name: report.size,
        **{f"{names.MESSAGES.name}.{outcome}": count for outcome, count in outcomes.items()},
        names.BYTES.name: sum(len(message.content) for message in report.messages),
        names.DURATION.name: round(report.seconds, 4),
        names.LAG.name: round(max(ended - min(enqueued) / 1000, 0), 3) if enqueued else None,
        names.RETRIES.name: report.retries,
        names.ERROR_TYPE: None if report.error is None else type(report.error).__name__,
    }
    return {name: value for name, value in fields.items() if value is not None}
