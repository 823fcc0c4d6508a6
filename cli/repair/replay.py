"""
Missing messages sent again, one by one, by the pipeline of their task.

A copy is given the number and the time under which the message entered, so that it gets the stamps, the id and the
journal's records that it would have got then. What lies elsewhere is looked at and stays where it is.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from cli.repair.copies import Contents, Copy, contents_of, dead_letters_of, event
from cli.repair.journal import sink_of
from cli.repair.manifest import Ledger, Missing
from shared.amqp import map_section, sections
from shared.amqp.values import Value, long, symbol, timestamp
from shared.config.assembly import pipelines
from shared.config.files import Configuration
from shared.config.journal_assembly import Journals
from shared.config.models import TaskFile
from shared.config.outputs import open_outputs
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.message.message import Message, Origin
from shared.message.rule_properties import RuleProperties
from shared.protocols import Outcome, Outgoing, Output
from shared.rules.rule import parse_action

_ANNOTATIONS = b"\x00\x53\x72"
_DEAD_LETTER_PROPERTIES = ("DeadLetterReason", "DeadLetterErrorDescription")


class State(StrEnum):
    """What has become of a missing message."""

    FOUND = "found"
    SENT = "sent"
    WITHHELD = "withheld"
    DONE = "done before"
    THERE = "there already"
    WAITS = "waits"
    LOST = "no copy"
    LEFT = "left alone"
    FAILED = "failed"


# Whoever repairs waits for each answer; a target that is back in an hour is repaired in an hour.
_HOLD = timedelta(seconds=10)
_FAILURES_IN_A_ROW = 3

GOOD = (State.FOUND, State.SENT, State.WITHHELD, State.DONE, State.THERE, State.WAITS)


class Report(NamedTuple):
    """What is said of one message."""

    message: Missing
    state: State
    text: str


class _Watched:
    """An output that remembers whether anything may have been taken since it was last asked."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.may_have_taken = False

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        before, self.may_have_taken = self.may_have_taken, True
        answers = await self._output.send(entity, messages, timeout_seconds=timeout_seconds)
        # Where a target could not be reached, the answer may be what was lost.
        refused = all(isinstance(each, TargetRefused | MessageRejected) for each in answers)
        self.may_have_taken = before or not refused
        return answers

    async def close(self) -> None:
        await self._output.close()


class Repair:
    """A repair of one manifest with one configuration."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Mapping[str, str],
        places: Sequence[tuple[str, str]],
        ledger: Ledger,
    ) -> None:
        """Look for copies in *places* too: a connection and the path of an entity each. Raises ConfigError."""
        self._configuration = configuration
        self._settings = settings
        self._places = places
        self._ledger = ledger
        outputs = open_outputs(configuration, settings)
        self._outputs = {alias: _Watched(each) for alias, each in outputs.items()}
        self._journals = Journals(configuration, settings, sink=sink_of(configuration, outputs))
        opened = pipelines(configuration, settings, journals=self._journals, outputs=self._outputs, hold=_HOLD)
        self._tasks: dict[str, tuple[TaskFile, Pipeline]] = {file.task: (file, pipeline) for file, pipeline in opened}
        self._failures: Counter[str] = Counter()
        self._looked_at: dict[tuple[str, str, str], Contents] = {}

    async def close(self) -> None:
        """Close what was opened to send and to journal."""
        for output in self._outputs.values():
            await output.close()
        await self._journals.close()

    async def report(self, missing: Missing, *, apply: bool) -> Report:
        """Find a copy of a message and, to *apply*, send it; whatever goes wrong is in the report."""
        try:
            objection = self._objection(missing) or await self._needless(missing)
            if objection is not None:
                return objection
            task, pipeline = self._tasks[missing.task]
            copy = await self._copy(task, missing)
            if copy is None:
                return Report(missing, State.LOST, f"none in {self._told_of_places(task, missing)}")
            where = f"{copy.place.site}/{copy.place.entity}"
            if not apply:
                return Report(missing, State.FOUND, f"in {where}")
            return await self._send(missing, pipeline, copy, task)
        except BuswayError as error:
            return Report(missing, State.FAILED, str(error))

    def _objection(self, missing: Missing) -> Report | None:
        """Say why a message is not the affair of this repair, None if it is."""
        if self._ledger.state(missing) == "sent":
            return Report(missing, State.DONE, f"an earlier repair has sent it, says {self._ledger.path}")
        if missing.task not in self._tasks:
            known = ", ".join(self._tasks)
            return Report(missing, State.LEFT, f"no task has this name any more, expected one of {known}")
        source = self._tasks[missing.task][0].source
        if (self._configuration.site(source.connection), source.entity) != (missing.site, missing.entity):
            told = f"it entered {missing.site}/{missing.entity}, and the task takes from {source.entity} now"
            return Report(missing, State.LEFT, told)
        if missing.copies:
            return Report(missing, State.LEFT, f"{missing.copies} of its parts have arrived, and would arrive twice")
        return None

    async def _needless(self, missing: Missing) -> Report | None:
        """Say where a message lies already, None where it is to be sent."""
        task, _ = self._tasks[missing.task]
        there = await self._at_target(task, missing)
        if there is not None:
            return Report(missing, State.THERE, f"lies in {there.place.site}/{there.place.entity}")
        source = task.source
        if source.hub is None:
            waiting = (await self._contents(task, source.connection, source.entity)).numbered(missing)
            if waiting is not None:
                return Report(missing, State.WAITS, f"is still in {source.entity}: the task will take it")
        return None

    async def _send(self, missing: Missing, pipeline: Pipeline, copy: Copy, task: TaskFile) -> Report:
        if self._failures[task.task] == _FAILURES_IN_A_ROW:
            told = f"not tried: the last {_FAILURES_IN_A_ROW} of its task could not be sent"
            return Report(missing, State.FAILED, told)
        was_cut_off = self._ledger.state(missing) == "sending"
        for output in self._outputs.values():
            output.may_have_taken = was_cut_off
        self._ledger.note(missing, "sending")
        try:
            outcomes = await pipeline.run([_as_it_entered(copy, missing, task)], copy.place.partition)
        except BaseException as error:
            self._failures[task.task] += isinstance(error, TargetUnavailable | TargetRefused)
            if not any(output.may_have_taken for output in self._outputs.values()):
                self._ledger.note(missing, "refused")
            raise
        self._failures[task.task] = 0
        self._ledger.note(missing, "sent")
        withheld = [outcome for outcome in outcomes if outcome is not Outcome.SENT]
        if withheld:
            return Report(missing, State.WITHHELD, f"by the task, which calls it {withheld[0]}; the journal has why")
        again = "; an earlier repair was cut off at it or had no answer: it may be there twice"
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
        """Return where to look for a copy of what has entered a queue or subscription: connections and entities."""
        dead = dead_letters_of(task)
        taps = [tap.source for tap in self._configuration.taps if tap.task in missing.taps and tap.source.hub is None]
        own = [] if dead is None else [(task.source.connection, dead)]
        return list(dict.fromkeys([*own, *((source.connection, source.entity) for source in taps), *self._places]))

    def _told_of_places(self, task: TaskFile, missing: Missing) -> str:
        if task.source.hub is not None:
            return f"what {self._configuration.site(task.source.connection)}/{task.source.hub} still keeps"
        places = self._places_of(task, missing)
        told = ", ".join(f"{self._configuration.site(alias)}/{entity}" for alias, entity in places)
        return told or "any place: its source has no dead letters, and --copies names nothing"

    async def _at_target(self, task: TaskFile, missing: Missing) -> Copy | None:
        """Return a copy that lies in a queue that the task sends to; one that was consumed cannot be seen."""
        for target in task.targets():
            if target.queue is not None:
                found = (await self._contents(task, target.connection, target.queue)).alike(missing)
                if found is not None:
                    return found
        return None

    async def _contents(self, task: TaskFile, alias: str, entity: str) -> Contents:
        key = task.task, alias, entity
        if key not in self._looked_at:
            place, contents = await contents_of(self._configuration, alias, entity, self._settings)
            self._looked_at[key] = Contents(place, contents, task)
        return self._looked_at[key]


def _as_it_entered(copy: Copy, missing: Missing, task: TaskFile) -> bytes:
    """Return the copy as the task's source would hand it over."""
    source = Origin(missing.site, missing.entity)
    raw = sections.split(copy.content)
    if task.source.hub is not None:
        return copy.content
    message = Message(raw, Message.received(copy.content, source).arrival)
    dead = dead_letters_of(task)
    if copy.place.entity == dead:
        message.set_properties(dict.fromkeys(_DEAD_LETTER_PROPERTIES))
    elif task.source.rule is not None and task.source.rule.action is not None:
        # Another subscription has not done what the rule of the task's does.
        parse_action(task.source.rule.action).apply(RuleProperties(message))
    changes: dict[str, Value | None] = {"x-opt-deadletter-source": None, "x-opt-locked-until": None}
    if missing.sequence_number is not None:
        changes["x-opt-sequence-number"] = long(missing.sequence_number)
    if missing.enqueued_time is not None:
        changes["x-opt-enqueued-time"] = timestamp(missing.enqueued_time)
    raw.message_annotations = map_section.edited(raw.message_annotations, _ANNOTATIONS, changes, symbol)
    sent = (raw.header, raw.message_annotations, raw.properties, raw.application_properties, raw.body, raw.footer)
    return b"".join(sent)
