"""The replay: messages go through the task's own pipeline, and the ledger has each before and after it is sent."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b

from cli.repair.journal import sink_of
from cli.repair.replay import WatchedOutput
from cli.replay.messages import NotFound, Replayed, Unread, key_of
from cli.replay.plan import Plan
from shared.amqp import map_section, sections
from shared.amqp.values import string
from shared.config.assembly import pipelines
from shared.config.files import Configuration
from shared.config.journal_assembly import Journals
from shared.config.models import TaskFile
from shared.config.outputs import open_outputs
from shared.errors import BuswayError
from shared.line.pace import Pace
from shared.line.pipeline import Pipeline
from shared.message.arrival import Arrival
from shared.message.message import Message
from shared.message.replay import REPLAY, replay_name
from shared.protocols import Entry, Flush, Imprint, Journal, Outcome, Record, Telemetry
from shared.resend.ledger import COMPLETED, REFUSED, SENDING, Ledger
from shared.resend.peek import peek
from shared.resend.places import Place

AT_ONCE = 100
_APPLICATION_PROPERTIES = b"\x00\x53\x74"
# A person waits: a target that is unavailable for longer is for a later run.
_HOLD = timedelta(seconds=10)


class Replay:
    """One run of a replay; errors are in `error`."""

    def __init__(
        self, plan: Plan, task: TaskFile, ledger: Ledger, pipeline: Pipeline, outputs: Mapping[str, WatchedOutput]
    ) -> None:
        """Send through *pipeline*, whose journal notes the results in *ledger*, and whose outputs are *outputs*."""
        self.counts: Counter[Outcome] = Counter()
        self.before = 0
        """Messages that an earlier run has sent."""
        self.again = 0
        """Messages that an interrupted run may have sent, and that are sent again."""
        self.not_found: list[str] = []
        self.unread: list[str] = []
        """Parts of the journal that cannot be read."""
        self.error: BuswayError | None = None
        self.is_stopped = False
        self._name = replay_name(plan.task, plan.identity)
        self._plan = plan
        self._task = task
        self._ledger = ledger
        self._pipeline = pipeline
        self._outputs = outputs
        self._stopping = asyncio.Event()
        self._pace: Pace | None = None

    def stop(self) -> None:
        """End the run after the batch that is under way."""
        self.is_stopped = True
        self._stopping.set()

    async def resolve(self, configuration: Configuration, settings: Mapping[str, str]) -> None:
        """Look into the target queues for what an interrupted run may have sent."""
        open_ = {key for key, entry in self._ledger.entries.items() if entry.state == SENDING}
        prefix = f"{self._name}/"
        for target in self._task.targets() if open_ else ():
            connection = configuration.connections[target.connection]
            setting = connection.setting
            if target.queue is None or setting is None or not connection.is_namespace:
                continue
            place = Place(target.connection, configuration.site(target.connection), setting, target.queue)
            async with contextlib.aclosing(peek(place, settings)) as letters:
                async for letter, _ in letters:
                    value = None if letter.message is None else letter.message.application_property(REPLAY)
                    text = value.payload if value is not None else None
                    if isinstance(text, str) and text.startswith(prefix):
                        open_.discard(text.removeprefix(prefix))
        found = [key for key, each in self._ledger.entries.items() if each.state == SENDING and key not in open_]
        await self._ledger.note(COMPLETED, found, self._name)

    async def send(self, page: Iterable[Replayed | NotFound | Unread], rate: float | None) -> None:
        """Send the messages of one partition, some at a time."""
        todo: list[Replayed] = []
        for each in page:
            if isinstance(each, NotFound):
                self.not_found.append(each.key)
            elif isinstance(each, Unread):
                self.unread.append(each.problem)
            elif self._ledger.state(each.key) == COMPLETED:
                self.before += 1
            else:
                todo.append(each)
        at_once = AT_ONCE if rate is None else max(1, min(AT_ONCE, round(rate)))
        self._pace = self._pace or Pace(rate)
        for start in range(0, len(todo), at_once):
            if self._stopping.is_set() or self.error is not None:
                return
            batch = todo[start : start + at_once]
            while (wait := self._pace.turn(len(batch), time.monotonic())) and not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), wait)
            await self._send(batch)

    async def _send(self, batch: Sequence[Replayed]) -> None:
        self.again += sum(self._ledger.state(each.key) == SENDING for each in batch)
        await self._ledger.note(SENDING, [each.key for each in batch], self._name)
        for output in self._outputs.values():
            output.may_have_accepted = False
        try:
            contents = [self._marked(each) for each in batch]
            self.counts += await self._pipeline.run(contents, batch[0].partition)
        except BuswayError as error:
            self.error = error
            if not any(output.may_have_accepted for output in self._outputs.values()):
                keys = [each.key for each in batch if self._ledger.state(each.key) == SENDING]
                await self._ledger.note(REFUSED, keys, self._name)

    def _marked(self, each: Replayed) -> bytes:
        """Return the message with the mark of the replay, and with a new id if that is wanted."""
        raw = sections.split(each.content)
        mark = f"{self._name}/{each.key}"
        if self._plan.new_ids:
            message = Message(raw, each.arrival)
            message.message_id = string(blake2b(mark.encode(), digest_size=16).hexdigest())
        raw.application_properties = map_section.edited(
            raw.application_properties, _APPLICATION_PROPERTIES, {REPLAY: string(mark)}, string
        )
        return raw.encode()


class NotedJournal:
    """The journal of a replay, which also notes in the ledger what is done; see `shared.protocols.Journal`."""

    def __init__(self, journal: Journal, ledger: Ledger, name: str) -> None:
        """Write to *journal*."""
        self._journal = journal
        self._ledger = ledger
        self._name = name

    def arriving(self, message: Message) -> Imprint | None:
        """Return the imprint of a message just received."""
        return self._journal.arriving(message)

    def unreadable(self, content: bytes) -> Imprint | None:
        """Return the imprint of received bytes that are not a message."""
        return self._journal.unreadable(content)

    def departing(self, message: Message, arrived: Imprint) -> Imprint:
        """Return the imprint of a message to be sent."""
        return self._journal.departing(message, arrived)

    def received(self, entries: Sequence[Entry], batch_id: int) -> Flush:
        """Return a writer of what was received."""
        return self._journal.received(entries, batch_id)

    def decided(self, records: Sequence[Record], batch_id: int) -> Flush:
        """Return a writer of the outcomes, which notes what is done."""
        flush = self._journal.decided(records, batch_id)
        waiting = {key_of(each.arrival) for each in records if each.outcome is Outcome.RETRY}
        arrivals = [each.arrival for each in records if key_of(each.arrival) not in waiting]

        async def write() -> None:
            await flush()
            await self._ledger.note(COMPLETED, _keys(arrivals), self._name)

        return write


def _keys(arrivals: Iterable[Arrival]) -> list[str]:
    return list(dict.fromkeys(key_of(each) for each in arrivals))


class _ReplayJournals(Journals):
    """The journals of a replay."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Mapping[str, str],
        plan: Plan,
        ledger: Ledger,
        *,
        outputs: Mapping[str, WatchedOutput],
    ) -> None:
        super().__init__(configuration, settings, sink=sink_of(configuration, dict(outputs)), replay=plan.identity)
        self._ledger = ledger
        self._name = replay_name(plan.task, plan.identity)

    def of(self, file: TaskFile, telemetry: Telemetry | None = None) -> Journal:
        return NotedJournal(super().of(file, telemetry), self._ledger, self._name)


@contextlib.asynccontextmanager
async def opened(
    plan: Plan, task: TaskFile, configuration: Configuration, settings: Mapping[str, str], ledger: Ledger
) -> AsyncIterator[Replay]:
    """Open the outputs and the journal, and give the replay; raises ConfigError."""
    outputs = {alias: WatchedOutput(each) for alias, each in open_outputs(configuration, settings).items()}
    journals = _ReplayJournals(configuration, settings, plan, ledger, outputs=outputs)
    try:
        found = pipelines(configuration, settings, journals=journals, outputs=outputs, hold=_HOLD)
        pipeline = next(each for file, each in found if file.task == task.task)
        yield Replay(plan, task, ledger, pipeline, outputs)
    finally:
        for output in outputs.values():
            await output.close()
        await journals.close()
