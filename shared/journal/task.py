"""The journal of one task: what its pipeline decides, as records in a sink."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from shared.clock import Clock, SystemClock
from shared.errors import TargetRefused, TargetUnavailable
from shared.journal.imprints import Imprinter, of_unreadable
from shared.journal.lines import member
from shared.journal.log import LogJournal
from shared.journal.record import RECEIVED, VERSION, Observer, Role
from shared.journal.recording import outcome_line, place_of, received_line
from shared.journal.sink import Sink, Stream
from shared.message import Message, Origin
from shared.protocols import Entry, Imprint, Record
from shared.rules import Action

_LOGGER = logging.getLogger("busway.journal")


class TaskJournal:
    """
    Writes what a pipeline received and what became of it; withheld messages are told of in the log too.

    A sink that cannot be written ends the batch with its error where the records are required. Where they are not, what
    is lost is counted and told of once, and again when it goes on.
    """

    def __init__(
        self,
        task: str,
        sink: Sink,
        *,
        is_hub: bool,
        is_required: bool,
        actions: Iterable[Action] = (),
        clock: Clock | None = None,
    ) -> None:
        """Write the records of *task*, whose rule and routes have the *actions*, to *sink*."""
        self.lost_records = 0
        self._task = task
        self._sink = sink
        self._is_hub = is_hub
        self._is_required = is_required
        self._clock = clock or SystemClock()
        self._imprinter = Imprinter(actions)
        self._log = LogJournal()
        self._lost_since_told = 0
        self._unwritten: dict[tuple[Role, int], bytes] = {}

    def arriving(self, message: Message) -> Imprint | None:
        """Return the imprint of a message just received."""
        return self._imprinter.arriving(message)

    def unreadable(self, content: bytes) -> Imprint | None:
        """Return the imprint of what was received and is no message."""
        return of_unreadable(content)

    def departing(self, message: Message, arrived: Imprint) -> Imprint:
        """Return the imprint of a message about to be sent, *arrived* itself where nothing has changed."""
        return self._imprinter.departing(message, arrived)

    async def received(self, entries: Sequence[Entry], batch_id: int) -> None:
        """Write what was received; raises TargetUnavailable or TargetRefused where it cannot be kept and must be."""
        lines = [received_line(entry) for entry in entries]
        await self._append(Role.SOURCE, lines, {"outcome": RECEIVED}, entries[0].arrival.origin, batch_id)

    async def write(self, records: Sequence[Record], batch_id: int) -> None:
        """Write what became of a batch; as `received`."""
        await self._log.write(records, batch_id)
        lines = [outcome_line(record, ordinal) for ordinal, record in enumerate(records)]
        await self._append(Role.TARGET, lines, {}, records[0].arrival.origin, batch_id)

    async def _append(
        self, role: Role, lines: Sequence[str], told: Mapping[str, str], origin: Origin, batch_id: int
    ) -> None:
        key = role, batch_id
        content = self._unwritten.pop(key, None) or member(lines, self._constants(role, told, origin, batch_id))
        try:
            await self._sink.append(Stream(self._task, role), content)
        except (TargetUnavailable, TargetRefused) as error:
            if self._is_required:
                # The next attempt is made with the same bytes: whether these have landed may not be known yet.
                self._unwritten[key] = content
                raise
            self._lose(len(lines), error)
        else:
            self._go_on()

    def _constants(self, role: Role, told: Mapping[str, str], origin: Origin, batch_id: int) -> dict[str, object]:
        return {
            **told,
            "v": VERSION,
            "task": self._task,
            "role": role,
            "observer": Observer.TASK,
            **place_of(origin, is_hub=self._is_hub),
            "batch_id": batch_id,
            "instance": self._sink.instance,
            "journal_time": round(self._clock.now().timestamp() * 1_000_000),
        }

    def _lose(self, count: int, error: TargetUnavailable | TargetRefused) -> None:
        self.lost_records += count
        if self._lost_since_told == 0:
            _LOGGER.error("%s: its journal cannot be written, and the task goes on without: %s", self._task, error)
        self._lost_since_told += count

    def _go_on(self) -> None:
        if self._lost_since_told:
            _LOGGER.error("%s: its journal is written again; %d records are lost", self._task, self._lost_since_told)
            self._lost_since_told = 0
