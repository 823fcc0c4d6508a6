"""
The repair of one manifest: each missing message is looked for, and a copy goes through the pipeline of its task.

A copy gets the sequence number and the enqueued time of the original, so that the pipeline gives it the same stamps, id
and journal records.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import timedelta

from cli.letters.ledger_file import LedgerFile
from cli.repair.copies import as_it_entered
from cli.repair.manifest import Missing
from cli.repair.search import Case, Report, Search, State, as_it_is_there, name_of
from shared.assembly.outputs import closing_outputs
from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.message.arrival import Arrival
from shared.protocols import Outcome, Outgoing
from shared.resend.delivery import Attempt, PreparedMessage
from shared.resend.ledger import Ledger
from shared.resend.letters import Letter
from shared.resend.pipeline_delivery import HOLD, OPTIONS, PipelineDelivery
from shared.resend.places import Place
from shared.resend.run import Run
from shared.resend.source import copies
from shared.tasks.files import Configuration

_FAILURES_IN_A_ROW = 3
_AGAIN = "; an earlier repair was interrupted or got no answer: it may arrive twice"


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
        self._report = report
        self._search = Search(
            configuration, settings, places, ledger, sends_expired=sends_expired, consumer_group=consumer_group
        )
        self._case: Case
        """The one in hand: they come one at a time."""
        self._failures: Counter[str] = Counter()

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
            async for _ in self._copies(messages):
                self._report(Report(self._case.missing, State.FOUND, f"in {name_of(self._case.copy)}"))
            return None

    async def send_all(self, messages: Iterable[Missing]) -> BuswayError | None:
        """Send what is missing, once it is `opened`; return the error that has ended the repair early."""
        return (await Run(copies(self._copies(messages)), self, None, OPTIONS).run()).error

    async def _copies(self, manifest: Iterable[Missing]) -> AsyncGenerator[list[tuple[str, Letter]]]:
        """Yield a copy of each message that is to be sent, one at a time; the others are reported."""
        for missing in manifest:
            try:
                found = await self._search.look_for(missing)
            except BuswayError as error:
                found = Report(missing, State.FAILED, str(error))
            if isinstance(found, Report):
                self._report(found)
                continue
            self._case, task = found, self.tasks[missing.task]
            content = as_it_entered(found.copy, missing, task, found.only_for, self.ledger.clock.now())
            yield [(missing.key, Letter(content, found.copy.place))]

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
            self._report(as_it_is_there(missing, there))
            return attempt
        where = f" to {', '.join(only_for)} only" if only_for else ""
        text = f"the copy in {name_of(copy)}{where}" + (_AGAIN if is_doubtful else "")
        self._report(Report(missing, State.SENT, text))
        return attempt

    def ledger_key(self, arrival: Arrival) -> str:  # noqa: ARG002 - only one is in hand, which may have no number
        """Return the key of the message in hand."""
        return self._case.missing.key

    def has_arrived(self, alias: str, entity: str, message: Outgoing) -> bool:  # noqa: ARG002 - only one is in hand
        """Return whether a target has the message in hand."""
        case = self._case
        return f"{self._configuration.site(alias)}/{entity}" in {*case.there, *case.missing.arrived}


def ledger_in(file: LedgerFile, *, is_sending: bool) -> Ledger:
    """Return the ledger of repairs in *file*; only read unless the repair *is_sending*."""
    return Ledger(file if is_sending else file.copy(), "repair")
