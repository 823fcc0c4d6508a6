"""
The repair of one manifest: each missing message is looked for, and a copy goes through the pipeline of its task.

A copy gets the sequence number and the enqueued time of the original, so that the pipeline gives it the same stamps, id
and journal records.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from cli.letters.ledger_file import LedgerFile
from cli.repair.copies import Contents, Copy, as_it_entered, dead_letters_of, event
from cli.repair.manifest import Missing
from shared.assembly.outputs import closing_outputs
from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.message.arrival import Arrival
from shared.protocols import Outcome, Outgoing
from shared.resend.delivery import Attempt, PreparedMessage
from shared.resend.ledger import DONE, OPEN, Ledger
from shared.resend.letters import Letter
from shared.resend.pipeline_delivery import HOLD, OPTIONS, PipelineDelivery
from shared.resend.places import Place, place_at
from shared.resend.run import Run
from shared.resend.source import copies
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile


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


_FAILURES_IN_A_ROW = 3
_AGAIN = "; an earlier repair was interrupted or got no answer: it may arrive twice"

GOOD = (State.FOUND, State.SENT, State.WITHHELD, State.DONE, State.THERE, State.WAITS, State.EXPIRED)


class Report(NamedTuple):
    """The result of a repair for one message, with an explanation."""

    message: Missing
    state: State
    text: str


class Case(NamedTuple):
    """A missing message, a copy of it, and where the copy is to go."""

    missing: Missing
    copy: Copy
    there: Sequence[str]
    """The target queues that have the message."""
    only_for: Sequence[str]
    """The targets that lack it, none for all."""


class Repair(PipelineDelivery):
    """Finds copies and sends them one by one, so that there is a report for each message."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Mapping[str, str],
        places: Sequence[Place],
        ledger: Ledger,
        report: Callable[[Report], None],
        *,
        sends_expired: bool = False,
        consumer_group: str | None = None,
    ) -> None:
        """
        Look for copies in *places* too; *report* gets the result for each message.

        Hubs are read with *consumer_group*, by default that of the task. With *sends_expired* it sends messages too
        that their source expired before their task could send them.
        """
        super().__init__(ledger)
        self._configuration = configuration
        self._settings = settings
        self._places = places
        self._report = report
        self._sends_expired = sends_expired
        self._consumer_group = consumer_group
        self._case: Case
        """The one in hand: they come one at a time."""
        self._failures: Counter[str] = Counter()
        self._contents_by_place: dict[tuple[str, Place], Contents] = {}

    async def run(self, messages: Iterable[Missing], *, is_sending: bool, hold: timedelta = HOLD) -> BuswayError | None:
        """Send what is missing, or only show it; return the error that has ended the repair early."""
        configuration, settings = self._configuration, self._settings
        async with (
            self.ledger,
            closing_outputs(configuration, settings) as outputs,
            self.opened(configuration, settings, outputs, hold=hold),
        ):
            if is_sending:
                return await self.send_all(messages)
            await self._show(messages)
            return None

    async def send_all(self, messages: Iterable[Missing]) -> BuswayError | None:
        """Send what is missing, once it is `opened`; return the error that has ended the repair early."""
        return (await Run(copies(self._copies(messages)), self, None, OPTIONS).run()).error

    async def _copies(self, manifest: Iterable[Missing]) -> AsyncGenerator[list[tuple[str, Letter]]]:
        """Yield a copy of each message that is to be sent, one at a time; the others are reported."""
        for missing in manifest:
            try:
                found = await self._look_for(missing)
            except BuswayError as error:
                found = Report(missing, State.FAILED, str(error))
            if isinstance(found, Report):
                self._report(found)
                continue
            self._case, task = found, self.tasks[missing.task]
            content = as_it_entered(found.copy, missing, task, found.only_for, self.ledger.clock.now())
            yield [(missing.key, Letter(content, found.copy.place))]

    async def _show(self, manifest: Iterable[Missing]) -> None:
        """Report where the copies are, and send none."""
        async for _ in self._copies(manifest):
            self._report(Report(self._case.missing, State.FOUND, f"in {_name(self._case.copy)}"))

    async def prepare(self, key: str, letter: Letter) -> PreparedMessage | str:
        """Return a copy for the pipeline of its task, or that the task has failed too often."""
        missing = self._case.missing
        if self._failures[missing.task] < _FAILURES_IN_A_ROW:
            return self.for_task(missing.task, key, letter.content, letter.origin.partition)
        text = f"not tried: the last {_FAILURES_IN_A_ROW} messages of its task could not be sent"
        self._report(Report(missing, State.FAILED, text))
        return text

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Send one message and report the result; an error concerns only this one, and the messages of its task."""
        (message,) = messages
        missing, copy, there, only_for = self._case
        before, repeated = self.outcomes.copy(), self.repeated
        # A copy of what only a tap has seen keeps the number of its own entity, which another message may have too.
        self.forget(missing.task)
        attempt = await super().send(messages)
        error = attempt.error
        is_doubtful = message.key in self.doubtful or self.repeated > repeated
        if error is not None:
            self._failures[missing.task] += isinstance(error, TargetUnavailable | TargetRefused)
            # The next run may find one copy, and cannot know of the other.
            text = f"{error}{_AGAIN if is_doubtful and self.may_have_sent else ''}"
            self._report(Report(missing, State.FAILED, text))
            return Attempt(rejected={message.key: text})
        self._failures[missing.task] = 0
        outcomes = self.outcomes - before
        if only_for and Outcome.SENT in outcomes:
            del outcomes[Outcome.FILTERED]  # what the other targets have
        withheld = [outcome for outcome in outcomes if outcome is not Outcome.SENT]
        if withheld:
            text = f"the task withheld it ({withheld[0]}); the journal has the reason"
            self._report(Report(missing, State.WITHHELD, text))
            return attempt
        if there and not only_for:
            self._report(_as_it_is_there(missing, there))
            return attempt
        where = f" to {', '.join(only_for)} only" if only_for else ""
        text = f"the copy in {_name(copy)}{where}" + (_AGAIN if is_doubtful else "")
        self._report(Report(missing, State.SENT, text))
        return attempt

    def ledger_key(self, arrival: Arrival) -> str:  # noqa: ARG002 - only one is in hand, which may have no number
        """Return the key of the message in hand."""
        return self._case.missing.key

    def has_arrived(self, alias: str, entity: str, message: Outgoing) -> bool:  # noqa: ARG002 - only one is in hand
        """Return whether a target has the message in hand."""
        case = self._case
        return f"{self._configuration.site(alias)}/{entity}" in {*case.there, *case.missing.arrived}

    async def _look_for(self, missing: Missing) -> Case | Report:
        """Return what is to be sent, or a report why there is nothing to send."""
        skipped = self._reason_to_skip(missing)
        if skipped is not None:
            return skipped
        task = self.tasks[missing.task]
        there = await self._at_targets(task, missing)
        lacking = self._lacking(task, missing, there)
        is_there = bool(there) and not lacking
        # What an interrupted repair has sent gets its records, as if it was sent now, if there is a copy.
        if is_there and self.ledger.state(missing.key) not in OPEN:
            return _as_it_is_there(missing, there)
        stays = None if is_there else await self._reason_to_leave(task, missing, lacking)
        if stays is not None:
            return stays
        copy = await self._copy(task, missing)
        if copy is not None:
            return Case(missing, copy, there, lacking)
        if is_there:
            return _as_it_is_there(missing, there)
        return Report(missing, State.LOST, f"not found in {self._names_of_places(task, missing)}")

    def _reason_to_skip(self, missing: Missing) -> Report | None:
        """Return the reason why this repair must not send a message, or None."""
        if self.ledger.state(missing.key) in DONE:
            return Report(missing, State.DONE, f"an earlier repair sent it (ledger: {self.ledger.where})")
        if missing.has_expired and not self._sends_expired:
            return Report(missing, State.EXPIRED, "its source expired it before it was sent; --expired sends it too")
        if missing.task not in self.tasks:
            known = ", ".join(self.tasks)
            return Report(missing, State.LEFT, f"no task has this name; the tasks are {known}")
        source = self.tasks[missing.task].source
        if (self._configuration.site(source.connection), source.entity) != (missing.site, missing.entity):
            text = f"it entered {missing.site}/{missing.entity}, but the task's source is now {source.entity}"
            return Report(missing, State.LEFT, text)
        return None

    async def _reason_to_leave(self, task: TaskFile, missing: Missing, lacking: Sequence[str]) -> Report | None:
        """Return a report if parts of a message arrived, or if it is still in its source, or None."""
        if missing.copies and not lacking:
            return Report(missing, State.LEFT, f"{missing.copies} of its parts arrived, and would arrive twice")
        source = task.source
        if source.hub is None:
            contents = await self._contents(task, place_at(source.connection, source.entity, self._configuration))
            is_numbered = missing.sequence_number is not None
            waiting = contents.numbered(missing) if is_numbered else contents.alike(missing)
            if waiting is not None:
                return Report(missing, State.WAITS, f"is still in {source.entity}: the task will receive it")
        return None

    async def _copy(self, task: TaskFile, missing: Missing) -> Copy | None:
        if task.source.hub is not None:
            return await event(self._configuration, task, self._settings, missing, self._consumer_group)
        for place in self._places_of(task, missing):
            found = (await self._contents(task, place)).alike(missing)
            if found is not None:
                return found
        return None

    def _places_of(self, task: TaskFile, missing: Missing) -> list[Place]:
        """Return the entities that may have a copy of a message of a queue or subscription."""
        taps = [tap.source for tap in self._configuration.taps if tap.task in missing.taps and tap.source.hub is None]
        tapped = [place_at(source.connection, source.entity, self._configuration) for source in taps]
        return list(dict.fromkeys([*dead_letters_of(task, self._configuration), *tapped, *self._places]))

    def _names_of_places(self, task: TaskFile, missing: Missing) -> str:
        if task.source.hub is not None:
            return f"the retained events of {self._configuration.site(task.source.connection)}/{task.source.hub}"
        names = ", ".join(map(str, self._places_of(task, missing)))
        return names or "any entity: its source has no dead-letter queue; use --copies"

    async def _at_targets(self, task: TaskFile, missing: Missing) -> list[str]:
        """Return the target queues of the task that have a copy; a consumed one cannot be seen."""
        there = []
        for target in task.targets():
            if target.queue is not None and self._configuration.connections[target.connection].is_namespace:
                place = place_at(target.connection, target.queue, self._configuration)
                found = (await self._contents(task, place)).alike(missing)
                if found is not None:
                    there.append(_name(found))
        return list(dict.fromkeys(there))

    def _lacking(self, task: TaskFile, missing: Missing, there: Sequence[str]) -> list[str]:
        """Return the targets that lack a message which other targets have, none if they are not known for sure."""
        if missing.copies != len(missing.arrived):
            return []  # of a part there may be several
        having = {*there, *missing.arrived}
        routes = [
            [f"{self._configuration.site(target.connection)}/{target.entity}" for target in route.targets]
            for route in task.routes
        ]
        possible = [names for names in routes if len(names) == missing.expected > 1 and having and having <= {*names}]
        return [name for name in possible[0] if name not in having] if len(possible) == 1 else []

    async def _contents(self, task: TaskFile, place: Place) -> Contents:
        key = task.task, place
        if key not in self._contents_by_place:
            self._contents_by_place[key] = await Contents.of(place, task, self._settings)
        return self._contents_by_place[key]


def ledger_in(file: LedgerFile, *, is_sending: bool) -> Ledger:
    """Return the ledger of repairs in *file*; only to be read, unless the repair is to *apply*."""
    return Ledger(file if is_sending else file.copy(), "repair")


def _as_it_is_there(missing: Missing, there: Sequence[str]) -> Report:
    return Report(missing, State.THERE, f"is in {' and '.join(there)}")


def _name(copy: Copy) -> str:
    return f"{copy.place.site}/{copy.place.entity}"
