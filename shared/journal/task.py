"""The journal of one task: what its pipeline decides, as records in a sink."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from shared.clock import Clock, SystemClock
from shared.errors import TargetRefused, TargetUnavailable
from shared.journal.imprints import Imprinter, of_unreadable
from shared.journal.lines import Line, member
from shared.journal.log import log_withheld
from shared.journal.record import GAP, RECEIVED, VERSION, Observer, Role
from shared.journal.recorded_results import RecordedResults
from shared.journal.recording import OutcomeLine, outcome_lines, place_of, received_line
from shared.journal.sink import Readable, Sink, Stream
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Entry, Flush, Imprint, Record, Recorded, Telemetry
from shared.rules import Action

_LOGGER = logging.getLogger("busway.journal")


class TaskJournal:
    """
    Writes what a pipeline received and the outcomes; withheld messages are logged as well.

    If the sink cannot be written and records are required, the batch ends with its error. If they are not required,
    lost records are counted, and the loss is logged when it begins and ends; the journal then has records of the gap.
    """

    def __init__(
        self,
        task: str,
        sink: Sink,
        *,
        is_hub: bool,
        is_required: bool,
        is_repair: bool = False,
        actions: Iterable[Action] = (),
        clock: Clock | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """
        Write the records of *task*, whose rule and routes have the *actions*, to *sink*; count lost ones.

        *is_repair* marks them as those of a repair.
        """
        self._task = task
        self._sink = sink
        self._is_hub = is_hub
        self._is_required = is_required
        self._is_repair = is_repair
        self._clock = clock or SystemClock()
        self._telemetry = telemetry
        self._imprinter = Imprinter(actions)
        self._results = RecordedResults(sink.container, task) if isinstance(sink, Readable) else None
        self._lost_since_logged = 0
        self._gaps: dict[Role, _Gap] = {}

    def arriving(self, message: Message) -> Imprint | None:
        """Return the imprint of a message just received."""
        return self._imprinter.arriving(message)

    def unreadable(self, content: bytes) -> Imprint | None:
        """Return the imprint of received bytes that are not a message."""
        return of_unreadable(content)

    def departing(self, message: Message, arrived: Imprint) -> Imprint:
        """Return the imprint of a message about to be sent; *arrived* itself if nothing has changed."""
        return self._imprinter.departing(message, arrived)

    def received(self, entries: Sequence[Entry], batch_id: int) -> Flush:
        """Return a flush that writes the records of received messages."""
        lines = [received_line(entry) for entry in entries]
        return self._flush(Role.SOURCE, lines, {"outcome": RECEIVED}, entries[0].arrival.origin, batch_id)

    def decided(self, records: Sequence[Record], batch_id: int) -> Flush:
        """Return a flush that writes the outcomes of a batch; withheld messages are logged at once."""
        log_withheld(records)
        return self._flush(Role.TARGET, outcome_lines(records), {}, records[0].arrival.origin, batch_id)

    async def recorded(self, since: datetime, now: datetime, timeout_seconds: float) -> Recorded:
        """Return what the sink has, if that can be read; a repair sends what is on record again."""
        if self._is_repair:
            return Recorded({})
        if self._results is None:
            return Recorded({}, "this journal cannot be read back")
        return await self._results.read(since, now, timeout_seconds)

    def _flush(
        self, role: Role, lines: Sequence[Line], constants: Mapping[str, str], origin: Origin, batch_id: int
    ) -> Flush:
        of_batch = _OfBatch(batch_id, round(self._clock.now().timestamp() * 1_000_000))
        content = member(lines, self._constants(role, constants, origin, of_batch))
        gap = self._gaps.get(role)
        if gap is not None:
            content = self._gap_records(gap, role, origin) + content
        # Each attempt uses the same bytes: it may be unknown whether the last attempt wrote them.
        return partial(self._append, role, content, _Gap(of_batch, of_batch, len(lines)), gap)

    async def _append(self, role: Role, content: bytes, lost: "_Gap", gap: "_Gap | None") -> None:
        try:
            await self._sink.append(Stream(self._task, role), content)
        except (TargetUnavailable, TargetRefused) as error:
            if self._is_required:
                raise
            self._lose(role, lost, error)
        else:
            # Overlapping batches may have lost more records since.
            if gap is not None and self._gaps.get(role) == gap:
                del self._gaps[role]
            self._go_on()

    def _constants(
        self, role: Role, constants: Mapping[str, str], origin: Origin, of_batch: "_OfBatch"
    ) -> dict[str, object]:
        return {
            **constants,
            "v": VERSION,
            "task": self._task,
            "role": role,
            "observer": Observer.TASK,
            **place_of(origin, is_hub=self._is_hub),
            "batch_id": of_batch.batch_id,
            "instance": self._sink.instance,
            "journal_time": of_batch.journal_time,
            **({"repair": True} if self._is_repair else {}),
        }

    # Lost records, if they are not required

    def _lose(self, role: Role, lost: "_Gap", error: TargetUnavailable | TargetRefused) -> None:
        if self._telemetry is not None:
            self._telemetry.unwritten(lost.records)
        if self._lost_since_logged == 0:
            _LOGGER.error("%s: the journal cannot be written; the task continues without it: %s", self._task, error)
        self._lost_since_logged += lost.records
        gap = self._gaps.get(role)
        self._gaps[role] = lost if gap is None else gap.with_more(lost)

    def _go_on(self) -> None:
        if self._lost_since_logged:
            _LOGGER.error("%s: the journal recovered; %d records were lost", self._task, self._lost_since_logged)
            self._lost_since_logged = 0

    def _gap_records(self, gap: "_Gap", role: Role, origin: Origin) -> bytes:
        """Return the records of a gap: one for the first batch that it covers, and one for the last."""
        place, outcome = origin._replace(partition=None), {"outcome": GAP}
        line = OutcomeLine(reason=f"{gap.records} records could not be written")
        ends = dict.fromkeys((gap.first, gap.last))
        return b"".join(member((line,), self._constants(role, outcome, place, end)) for end in ends)


class _OfBatch(NamedTuple):
    """The batch of a record, and the time at which it was written."""

    batch_id: int
    journal_time: int


class _Gap(NamedTuple):
    """Lost records of one side: their number, and the first and the last batch."""

    first: _OfBatch
    last: _OfBatch
    records: int

    def with_more(self, lost: "_Gap") -> "_Gap":
        """Return the union of both gaps."""
        ends = (self.first, self.last, lost.first, lost.last)
        times = sorted(ends, key=lambda end: end.journal_time)
        return _Gap(times[0], times[-1], self.records + lost.records)
