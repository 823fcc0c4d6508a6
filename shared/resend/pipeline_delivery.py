"""
Sending through the pipelines of tasks: with their editors, routes and journals, as if the source had delivered again.

The ledger has each message before it is sent; the journal notes in it what is decided before the pipeline goes on.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Self

from shared.assembly.journals import Journals
from shared.assembly.pipelines import pipelines
from shared.errors import BuswayError, MessageRejected, TargetRefused
from shared.journal.sink import Sink
from shared.line.pipeline import Pipeline
from shared.message.arrival import Arrival
from shared.protocols import Entry, Flush, Journal, Outcome, Outgoing, Output, Record, Telemetry
from shared.resend.delivery import Attempt, Delivery, PreparedMessage, was_answered
from shared.resend.evidence import Answer, Question, may_look
from shared.resend.hub_sink import sink_of
from shared.resend.ledger import DONE, OPEN, REFUSED, SENDING, SENT, Ledger
from shared.resend.options import Options, Unclear
from shared.resend.places import Destination
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

HOLD = timedelta(seconds=10)
"""A person waits for the command: a target that is unavailable for longer is for a later run."""
OPTIONS = Options(unclear=Unclear.SEND, retries=0)
"""A pipeline tries again itself, and every message is sent that may not have arrived."""


def key_of(arrival: Arrival) -> str:
    """Return what identifies a message at its source, also after the entity was deleted and created."""
    return f"{arrival.origin.partition or ''}/{arrival.sequence_number}/{arrival.enqueued_time}"


type HasArrived = Callable[[str, str, Outgoing], bool]
"""Says whether a target, an alias and an entity, is seen to have a message."""


class WatchedOutput:
    """An output that knows what its targets may have accepted before, or have for sure."""

    def __init__(self, alias: str, output: Output, has_arrived: HasArrived) -> None:
        """Send through *output*, the one of *alias*, what has not arrived."""
        self._alias = alias
        self._output = output
        self._has_arrived = has_arrived
        self.repeated = 0
        """How many messages were sent again to a target that had not answered."""
        self._unanswered: set[str] = set()
        self.may_have_accepted = False

    def begin(self) -> None:
        """Forget what has happened until now: other messages come."""
        self.may_have_accepted = False
        self._unanswered.clear()

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages*; see `shared.protocols.Output`."""
        before, self.may_have_accepted = self.may_have_accepted, True
        there = [self._has_arrived(self._alias, entity, message) for message in messages]
        left = [message for message, is_there in zip(messages, there, strict=True) if not is_there]
        self.repeated += len(left) if entity in self._unanswered else 0
        sent = await self._output.send(entity, left, timeout_seconds=timeout_seconds) if left else []
        # If the connection failed, the target may have accepted the message and only the answer was lost.
        if not all(answer is None or was_answered(answer) for answer in sent):
            self._unanswered.add(entity)
        refused = all(isinstance(answer, TargetRefused | MessageRejected) for answer in sent) and not any(there)
        self.may_have_accepted = before or not refused
        rest = iter(sent)
        return [None if is_there else next(rest) for is_there in there]

    async def close(self) -> None:
        """Close the output."""
        await self._output.close()


class PipelineDelivery(Delivery):
    """
    Sends messages through pipelines, those of one partition together; `prepare` is a subclass's.

    The pipeline keeps the order of sessions. A message that an interrupted run may have sent is sent again.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Send once it is `opened`."""
        super().__init__(ledger)
        self.outcomes: Counter[Outcome] = Counter()
        self.doubtful: set[str] = set()
        """The keys of messages that an interrupted run may have sent."""
        self.tasks: dict[str, TaskFile] = {}
        self._pipelines: dict[str, Pipeline] = {}
        self._outputs: dict[str, WatchedOutput] = {}

    @contextlib.asynccontextmanager
    async def opened(
        self,
        configuration: Configuration,
        settings: Mapping[str, str],
        outputs: Mapping[str, Output],
        *,
        sink: Sink | None = None,
        replay: str | None = None,
        hold: timedelta = HOLD,
    ) -> AsyncIterator[Self]:
        """
        Open the journals and pipelines of all tasks, which send through *outputs*; raises ConfigError.

        The records go to *sink*, by default the place in journal.yaml. They are those of the *replay* with this id,
        without one those of a repair. A target may be unavailable for *hold*.
        """
        in_doubt = [entry for entry in self.ledger.entries.values() if entry.state in OPEN]
        await may_look(in_doubt, self.ledger, asyncio.Event())
        clock = self.ledger.clock
        self._outputs = {alias: WatchedOutput(alias, output, self.has_arrived) for alias, output in outputs.items()}
        sink = sink or sink_of(configuration, outputs)  # what a journal accepts is no message
        journals = _NotedJournals(configuration, settings, clock, sink=sink, is_repair=True, replay=replay)
        journals.note, journals.ledger_key = self._note, self.ledger_key
        try:
            found = pipelines(configuration, settings, journals=journals, outputs=self._outputs, clock=clock, hold=hold)
            self.tasks = {file.task: file for file, _ in found}
            self._pipelines = {file.task: pipeline for file, pipeline in found}
            yield self
        finally:
            await journals.close()

    def ledger_key(self, arrival: Arrival) -> str:
        """Return the key of a message in the ledger."""
        return key_of(arrival)

    def has_arrived(self, alias: str, entity: str, message: Outgoing) -> bool:  # noqa: ARG002 - nothing is looked at
        """Return whether a target is seen to have a message: it is recorded as sent, and not sent again."""
        return False

    @property
    def repeated(self) -> int:
        """How many messages were sent again to a target that had not answered."""
        return sum(output.repeated for output in self._outputs.values())

    @property
    def may_have_sent(self) -> bool:
        """Whether a target may have accepted something of the latest send."""
        return any(output.may_have_accepted for output in self._outputs.values())

    @staticmethod
    def for_task(task: str, key: str, content: bytes, partition: str | None) -> PreparedMessage:
        """Return a message for the pipeline of a task."""
        outgoing = Outgoing(content, None, None, None, partition=partition)
        return PreparedMessage(key, Destination("", task, partition or ""), outgoing)

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Send *messages*, all of one task and partition; with an error, some may be decided nevertheless."""
        task, keys = messages[0].destination.site, [message.key for message in messages]
        await self.ledger.note(SENDING, keys, task)
        for output in self._outputs.values():
            output.begin()
        result = Attempt()
        try:
            contents = [message.outgoing.content for message in messages]
            self.outcomes += await self._pipelines[task].run(contents, messages[0].outgoing.partition)
        except BaseException as error:
            if not self.may_have_sent:
                refused = [key for key in keys if not self._is_done(key) and key not in self.doubtful]
                await self.ledger.note(REFUSED, refused, task)
            if not isinstance(error, BuswayError):
                raise
            result.error = error
        result.sent = [key for key in keys if self._is_done(key)]
        return result

    def forget(self, task: str) -> None:
        """Let the pipeline of *task* forget what it has sent: the next message may only look like one of those."""
        self._pipelines[task].forget()

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:
        """Return that nothing is known."""
        self.doubtful.update(question.key for question in questions)
        return await super().answers(to, questions, stopping)

    def _is_done(self, key: str) -> bool:
        return self.ledger.state(key) in DONE

    async def _note(self, task: str, keys: Iterable[str]) -> None:
        await self.ledger.note(SENT, dict.fromkeys(keys), task)


type _Note = Callable[[str, Iterable[str]], Awaitable[None]]


class _NotedJournals(Journals):
    """The journals of pipelines, which also note what is decided."""

    note: _Note
    ledger_key: Callable[[Arrival], str]

    def of(self, file: TaskFile, telemetry: Telemetry | None = None) -> Journal:
        return NotedJournal(super().of(file, telemetry), self.ledger_key, partial(self.note, file.task))


class NotedJournal:
    """A journal that also notes what is decided; see `shared.protocols.Journal`."""

    def __init__(
        self,
        journal: Journal,
        ledger_key: Callable[[Arrival], str],
        note: Callable[[Iterable[str]], Awaitable[None]],
    ) -> None:
        """Write to *journal*, and call *note* with the *ledger_key* of each message that has all of its results."""
        self._journal = journal
        self._ledger_key = ledger_key
        self._note = note
        self.arriving = journal.arriving
        self.unreadable = journal.unreadable
        self.departing = journal.departing
        self.recorded = journal.recorded
        self._left: dict[str, int] = {}

    def received(self, entries: Sequence[Entry], batch_id: int) -> Flush:
        """Record what was received, and remember how many results each message will have."""
        self._left.update({self._ledger_key(entry.arrival): entry.parts for entry in entries})
        return self._journal.received(entries, batch_id)

    def decided(self, records: Sequence[Record], batch_id: int) -> Flush:
        """Record results, and note the messages that have all of theirs."""
        flush = self._journal.decided(records, batch_id)
        # Now, because what cannot be written is written when another message is in hand.
        outcomes = [(self._ledger_key(record.arrival), record.outcome) for record in records]
        done: list[str] | None = None

        async def write() -> None:
            nonlocal done
            await flush()
            # If the note fails, all of this is done again.
            done = self._done(outcomes) if done is None else done
            await self._note(done)

        return write

    def _done(self, outcomes: Sequence[tuple[str, Outcome]]) -> list[str]:
        """Return the keys of the messages that have their last result with these *outcomes*, by their keys."""
        waiting = {key for key, outcome in outcomes if outcome is Outcome.RETRY}
        counts = Counter(key for key, _ in outcomes)
        done = []
        for key in counts.keys() - waiting:
            # What goes to several targets is recorded for each by itself.
            left = self._left.pop(key, 0) - counts[key]
            if left > 0:
                self._left[key] = left
            else:
                done.append(key)
        return done
