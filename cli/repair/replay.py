"""
Sending of missing messages, one by one, through the pipelines of their tasks.

A copy gets the sequence number and the enqueued time of the original, so that the pipeline gives it the same stamps, id
and journal records.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from cli.repair.copies import Contents, Copy, contents_of, dead_letters_of, event
from cli.repair.journal import sink_of
from cli.repair.manifest import Ledger, LedgerUnwritable, Missing
from shared.amqp import map_section, sections
from shared.amqp.values import Value, long, symbol, timestamp
from shared.clock import SystemClock
from shared.config.assembly import pipelines
from shared.config.files import Configuration
from shared.config.journal_assembly import Journals
from shared.config.models import TaskFile
from shared.config.outputs import open_outputs
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.message.ttl import MAX_MILLISECONDS
from shared.protocols import Outcome, Outgoing, Output
from shared.rules.rule import parse_action

_ANNOTATIONS = b"\x00\x53\x72"
_DEAD_LETTER_PROPERTIES = ("DeadLetterReason", "DeadLetterErrorDescription")


class State(StrEnum):
    """The result of a repair for one message."""

    FOUND = "found"
    SENT = "sent"
    WITHHELD = "withheld"
    DONE = "done before"
    THERE = "there already"
    WAITS = "waits"
    EXPIRED = "expired"
    LOST = "no copy"
    LEFT = "left alone"
    FAILED = "failed"


# A person waits for the command: a target that is unavailable for longer is for the next repair.
_HOLD = timedelta(seconds=10)
_FAILURES_IN_A_ROW = 3

GOOD = (State.FOUND, State.SENT, State.WITHHELD, State.DONE, State.THERE, State.WAITS, State.EXPIRED)


class Report(NamedTuple):
    """The result of a repair for one message, with an explanation."""

    message: Missing
    state: State
    text: str


class WatchedOutput:
    """An output that remembers whether a target may have accepted a message."""

    def __init__(self, output: Output) -> None:
        """Send through *output*."""
        self._output = output
        self.may_have_accepted = False

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages*; see `shared.protocols.Output`."""
        before, self.may_have_accepted = self.may_have_accepted, True
        answers = await self._output.send(entity, messages, timeout_seconds=timeout_seconds)
        # If the connection failed, the target may have accepted the message and only the answer was lost.
        refused = all(isinstance(each, TargetRefused | MessageRejected) for each in answers)
        self.may_have_accepted = before or not refused
        return answers

    async def close(self) -> None:
        """Close the output."""
        await self._output.close()


class Repair:
    """A repair of one manifest with one configuration."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Mapping[str, str],
        places: Sequence[tuple[str, str]],
        ledger: Ledger,
        *,
        hold: timedelta = _HOLD,
        sends_expired: bool = False,
    ) -> None:
        """
        Look for copies in *places* too (connection and entity), and wait for an unavailable target for *hold*.

        With *sends_expired* it sends messages too that their source expired before their task could send them.

        Raises ConfigError.
        """
        self._configuration = configuration
        self._settings = settings
        self._places = places
        self._ledger = ledger
        self._sends_expired = sends_expired
        outputs = open_outputs(configuration, settings)
        self._outputs = {alias: WatchedOutput(each) for alias, each in outputs.items()}
        self._journals = Journals(configuration, settings, sink=sink_of(configuration, outputs), is_repair=True)
        opened = pipelines(configuration, settings, journals=self._journals, outputs=self._outputs, hold=hold)
        self._tasks: dict[str, tuple[TaskFile, Pipeline]] = {file.task: (file, pipeline) for file, pipeline in opened}
        self._failures: Counter[str] = Counter()
        self._contents_by_place: dict[tuple[str, str, str], Contents] = {}

    async def close(self) -> None:
        """Close the outputs and the journals."""
        for output in self._outputs.values():
            await output.close()
        await self._journals.close()

    async def report(self, missing: Missing, *, apply: bool) -> Report:
        """Find a copy of a message and, with *apply*, send it; errors are in the report."""
        try:
            skipped = self._reason_to_skip(missing) or await self._already_there(missing)
            if skipped is not None:
                return skipped
            task, pipeline = self._tasks[missing.task]
            copy = await self._copy(task, missing)
            if copy is None:
                return Report(missing, State.LOST, f"not found in {self._names_of_places(task, missing)}")
            where = f"{copy.place.site}/{copy.place.entity}"
            if not apply:
                return Report(missing, State.FOUND, f"in {where}")
            return await self._send(missing, pipeline, copy, task)
        except LedgerUnwritable:
            raise
        except BuswayError as error:
            return Report(missing, State.FAILED, str(error))

    def _reason_to_skip(self, missing: Missing) -> Report | None:
        """Return the reason why this repair must not send a message, or None."""
        if self._ledger.state(missing) == "sent":
            return Report(missing, State.DONE, f"an earlier repair sent it (ledger: {self._ledger.path})")
        if missing.has_expired and not self._sends_expired:
            return Report(missing, State.EXPIRED, "its source expired it before it was sent; --expired sends it too")
        if missing.task not in self._tasks:
            known = ", ".join(self._tasks)
            return Report(missing, State.LEFT, f"no task has this name; the tasks are {known}")
        source = self._tasks[missing.task][0].source
        if (self._configuration.site(source.connection), source.entity) != (missing.site, missing.entity):
            text = f"it entered {missing.site}/{missing.entity}, but the task's source is now {source.entity}"
            return Report(missing, State.LEFT, text)
        if missing.copies:
            return Report(missing, State.LEFT, f"{missing.copies} of its parts arrived, and would arrive twice")
        return None

    async def _already_there(self, missing: Missing) -> Report | None:
        """Return a report if a message is still in its source or already in its target, or None."""
        task, _ = self._tasks[missing.task]
        there = await self._at_target(task, missing)
        if there is not None:
            return Report(missing, State.THERE, f"is in {there.place.site}/{there.place.entity}")
        source = task.source
        if source.hub is None:
            contents = await self._contents(task, source.connection, source.entity)
            is_numbered = missing.sequence_number is not None
            waiting = contents.numbered(missing) if is_numbered else contents.alike(missing)
            if waiting is not None:
                return Report(missing, State.WAITS, f"is still in {source.entity}: the task will receive it")
        return None

    async def _send(self, missing: Missing, pipeline: Pipeline, copy: Copy, task: TaskFile) -> Report:
        if self._failures[task.task] == _FAILURES_IN_A_ROW:
            text = f"not tried: the last {_FAILURES_IN_A_ROW} messages of its task could not be sent"
            return Report(missing, State.FAILED, text)
        was_cut_off = self._ledger.state(missing) == "sending"
        for output in self._outputs.values():
            output.may_have_accepted = was_cut_off
        self._ledger.note(missing, "sending")
        try:
            content = as_it_entered(copy, missing, task, SystemClock().now())
            outcomes = await pipeline.run([content], copy.place.partition)
        except BaseException as error:
            self._failures[task.task] += isinstance(error, TargetUnavailable | TargetRefused)
            if not any(output.may_have_accepted for output in self._outputs.values()):
                self._ledger.note(missing, "refused")
            raise
        self._failures[task.task] = 0
        self._ledger.note(missing, "sent")
        withheld = [outcome for outcome in outcomes if outcome is not Outcome.SENT]
        if withheld:
            return Report(missing, State.WITHHELD, f"the task withheld it ({withheld[0]}); the journal has the reason")
        again = "; an earlier repair was interrupted or got no answer: it may arrive twice"
        where = f"the copy in {copy.place.site}/{copy.place.entity}"
        return Report(missing, State.SENT, where + (again if was_cut_off else ""))

    async def _copy(self, task: TaskFile, missing: Missing) -> Copy | None:
        if task.source.hub is not None:
            return await event(self._configuration, task, missing)
        for alias, entity in self._places_of(task, missing):
            found = (await self._contents(task, alias, entity)).alike(missing)
            if found is not None:
                return found
        return None

    def _places_of(self, task: TaskFile, missing: Missing) -> list[tuple[str, str]]:
        """Return the connections and entities that may have a copy of a message of a queue or subscription."""
        dead = dead_letters_of(task)
        taps = [tap.source for tap in self._configuration.taps if tap.task in missing.taps and tap.source.hub is None]
        own = [] if dead is None else [(task.source.connection, dead)]
        return list(dict.fromkeys([*own, *((source.connection, source.entity) for source in taps), *self._places]))

    def _names_of_places(self, task: TaskFile, missing: Missing) -> str:
        if task.source.hub is not None:
            return f"the retained events of {self._configuration.site(task.source.connection)}/{task.source.hub}"
        places = self._places_of(task, missing)
        names = ", ".join(f"{self._configuration.site(alias)}/{entity}" for alias, entity in places)
        return names or "any entity: its source has no dead-letter queue; use --copies"

    async def _at_target(self, task: TaskFile, missing: Missing) -> Copy | None:
        """Return a copy that is in a target queue of the task; a consumed one cannot be seen."""
        for target in task.targets():
            if target.queue is not None and self._configuration.connections[target.connection].is_namespace:
                found = (await self._contents(task, target.connection, target.queue)).alike(missing)
                if found is not None:
                    return found
        return None

    async def _contents(self, task: TaskFile, alias: str, entity: str) -> Contents:
        key = task.task, alias, entity
        if key not in self._contents_by_place:
            place, contents = await contents_of(self._configuration, alias, entity, self._settings)
            self._contents_by_place[key] = Contents(place, contents, task)
        return self._contents_by_place[key]


def as_it_entered(copy: Copy, missing: Missing, task: TaskFile, now: datetime) -> bytes:
    """Return the copy as the task's source would deliver it."""
    source = Origin(missing.site, missing.entity)
    raw = sections.split(copy.content)
    if task.source.hub is not None:
        return copy.content
    message = Message(raw, Message.received(copy.content, source).arrival)
    dead = dead_letters_of(task)
    if copy.place.entity == dead:
        message.set_properties(dict.fromkeys(_DEAD_LETTER_PROPERTIES))
    elif task.source.rule is not None and task.source.rule.action is not None:
        # The rule of the task's own subscription was not applied to a copy in another one.
        parse_action(task.source.rule.action).apply(RuleProperties(message))
    if missing.has_expired and missing.enqueued_time is not None and message.time_to_live and task.ttl == "remaining":
        # The task subtracts the age of the message, so that its whole life remains.
        age = round(now.timestamp() * 1000) - missing.enqueued_time
        message.time_to_live = min(message.time_to_live + max(age, 0), MAX_MILLISECONDS)
    changes: dict[str, Value | None] = {"x-opt-deadletter-source": None, "x-opt-locked-until": None}
    if missing.sequence_number is not None:
        changes["x-opt-sequence-number"] = long(missing.sequence_number)
    if missing.enqueued_time is not None:
        changes["x-opt-enqueued-time"] = timestamp(missing.enqueued_time)
    raw.message_annotations = map_section.edited(raw.message_annotations, _ANNOTATIONS, changes, symbol)
    sent = (raw.header, raw.message_annotations, raw.properties, raw.application_properties, raw.body, raw.footer)
    return b"".join(sent)
