"""
What the app does each time its nightly timer fires: start the job, look for the result, report it once.

All state is in the container with the results, so it does not matter which instance runs, how often, or whether one
crashes in between. docs/decisions/0012 gives the reasons.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

from shared.clock import Clock, SystemClock
from shared.errors import BuswayError, TargetUnavailable
from shared.nightly.container_job import ContainerJob
from shared.nightly.results import Note, Result, Results, UnreadableSummary, page_of, run_of
from shared.nightly.settings import READY, NightlySettings
from shared.protocols import NightTelemetry

_LOGGER = logging.getLogger("busway.nightly")

FIRST_WAIT = 5.0
_WAITS = (FIRST_WAIT, 4 * FIRST_WAIT)
_LONGEST_WAIT = 60.0
# A process that has claimed a day starts the job within this time, or has crashed.
STALE = timedelta(minutes=10)

CLEAN, FINDINGS, UNDECIDED = "clean", "findings", "could not decide"
NO_RESULT = "no result"
_AGAIN = "again"
"""In a note: that the job has failed and was started again, which is done once."""
WORDS = (CLEAN, FINDINGS, UNDECIDED)


class AttentionNeeded(BuswayError):
    """A person must look at the result; raised once, so that the invocation counts as failed."""


def report(text: str, fields: Mapping[str, object], *, needs_attention: bool) -> None:
    """Log *text* with its *fields*; raises AttentionNeeded if a person must look at it."""
    log = _LOGGER.error if needs_attention else _LOGGER.info
    log("%s %s", text, json.dumps(fields, ensure_ascii=False), extra=fields)
    if needs_attention:
        raise AttentionNeeded(text)


@dataclass(frozen=True)
class Night:
    """The nightly reconciliation of an app: without a *job*, it only watches for results of something else."""

    settings: NightlySettings
    job: ContainerJob | None
    telemetry: NightTelemetry
    _: KW_ONLY
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def look(self) -> None:
        """
        Do what is due now for the last full day, and for the day before it.

        Raises AttentionNeeded if a person must look at what is reported, TargetUnavailable if the job or the results
        are unavailable, TargetRefused if they deny access.
        """
        ready = timedelta(hours=READY.hour, minutes=READY.minute)
        last = (self.clock.now().astimezone(UTC) - ready).date() - timedelta(days=1)
        async with Results(self.settings.results) as results:
            try:
                # Report a late result even though another day has begun.
                await self._look_back(results, last - timedelta(days=1))
            finally:
                await self._look_at(results, last)

    async def _look_back(self, results: Results, day: date) -> None:
        note = await results.note(day)
        if note is not None:
            await self._follow(results, day, note)

    async def _look_at(self, results: Results, day: date) -> None:
        note = await results.note(day)
        if note is None and not isinstance(await self._read(results, day), Result):
            if self.job is not None:
                await self._start(results, self.job, day, Note(self._now()))
                return
            if self.clock.now() < self._due(day):
                return
        await self._follow(results, day, note or Note(self._now(), started=True))

    async def _start(self, results: Results, job: ContainerJob, day: date, note: Note) -> None:
        claimed = await results.save(day, note)
        if claimed is None:
            return  # another instance has claimed the day
        try:
            by_hand = await self._started(job, day)
        except BuswayError as error:
            _LOGGER.error("nightly reconciliation of %s: the job cannot be started: %s", day, error)  # noqa: TRY400 - the host logs the rest
            await results.forget(day, claimed)
            raise
        if await results.save(day, replace(claimed, started=True)) is not None:
            what = "was already started by someone else" if by_hand else "was started"
            _LOGGER.info("nightly reconciliation of %s: the job %s", day, what)

    async def _started(self, job: ContainerJob, day: date) -> bool:
        """Start the job for *day* unless it is running; return whether someone else had started it."""
        attempts = 0
        while True:
            try:
                # Check before each attempt: a failed one may still have started the job.
                found = await job.execution(day)
                if found is not None and found.is_running:
                    return attempts == 0
                await job.start(day)
            except TargetUnavailable as error:
                if attempts == len(_WAITS):
                    raise
                wait = 0.0 if error.retry_after is None else error.retry_after.total_seconds()
                await self.sleep(min(max(_WAITS[attempts], wait), _LONGEST_WAIT))
                attempts += 1
            else:
                return False

    async def _follow(self, results: Results, day: date, note: Note) -> None:
        result = await self._read(results, day)
        if isinstance(result, Result):
            await self._report_result(results, day, note, result)
            return
        if self.job is not None and not note.started:
            if self.clock.now() - datetime.fromisoformat(note.claimed) >= STALE:
                await self._start(results, self.job, day, replace(note, claimed=self._now()))
            return
        execution = None if self.job is None else await self.job.execution(day)
        if execution is not None and not execution.is_running:
            # It may have ended between the two requests.
            result = await self._read(results, day)
            if isinstance(result, Result):
                await self._report_result(results, day, note, result)
                return
            text = f"execution {execution.name} has status {execution.status} and wrote no result{_unreadable(result)}"
            if self.job is not None and _AGAIN not in note.reported:
                # It may have got no machine, or no image: that passes (microsoft/azure-container-apps 816, 1168).
                _LOGGER.warning("nightly reconciliation of %s: %s; the job is started again", day, text)
                again = replace(_with_reported(note, _AGAIN), claimed=self._now(), started=False)
                await self._start(results, self.job, day, again)
                return
            await self._report_missing(results, day, note, execution.name, text)
        elif self.clock.now() >= max(self._due(day), self._fair_time(note)):
            job = "no execution" if execution is None else f"execution {execution.name} is running"
            text = f"none by {self.settings.due:%H:%M} UTC{'' if self.job is None else f', {job}'}{_unreadable(result)}"
            await self._report_missing(results, day, note, "overdue", text)

    async def _report_result(self, results: Results, day: date, note: Note, result: Result) -> None:
        if result.etag in note.reported or await results.save(day, _with_reported(note, result.etag)) is None:
            return
        verdict = WORDS[result.exit_code]
        for task, findings in result.findings.items():
            for kind, count in findings.items():
                self.telemetry.finding(task, kind, count)
        self.telemetry.night(verdict)
        fields = {
            "busway.night": day.isoformat(),
            "busway.verdict": verdict,
            "busway.findings": {task: found for task, found in result.findings.items() if found},
            "busway.problems": dict(result.problems),
        }
        page = page_of(results.where, run_of(day))
        text = f"nightly reconciliation of {day}: {verdict}. {result.sentence} Page: {page}"
        report(text, fields, needs_attention=result.exit_code != 0)

    async def _report_missing(self, results: Results, day: date, note: Note, key: str, text: str) -> None:
        if key in note.reported or await results.save(day, _with_reported(note, key)) is None:
            return
        self.telemetry.night(NO_RESULT)
        message = f"nightly reconciliation of {day}: {NO_RESULT}: {text}"
        fields = {"busway.night": day.isoformat(), "busway.verdict": NO_RESULT}
        _LOGGER.error("%s. %s", message, json.dumps(fields), extra=fields)
        raise AttentionNeeded(message)

    async def _read(self, results: Results, day: date) -> Result | UnreadableSummary | None:
        try:
            return await results.of_run(run_of(day))
        except UnreadableSummary as error:
            _LOGGER.warning("nightly reconciliation of %s: %s", day, error)
            return error

    def _due(self, day: date) -> datetime:
        return datetime.combine(day + timedelta(days=1), self.settings.due, UTC)

    def _fair_time(self, note: Note) -> datetime:
        """Return when a job that was started late is overdue: after the same time as one that was started on time."""
        if self.job is None:
            return datetime.fromisoformat(note.claimed)
        whole = timedelta(hours=self.settings.due.hour, minutes=self.settings.due.minute)
        ready = timedelta(hours=READY.hour, minutes=READY.minute)
        return datetime.fromisoformat(note.claimed) + whole - ready

    def _now(self) -> str:
        return self.clock.now().astimezone(UTC).isoformat(timespec="seconds")


def _with_reported(note: Note, key: str) -> Note:
    return replace(note, reported=(*note.reported, key))


def _unreadable(unreadable: UnreadableSummary | None) -> str:
    return "" if unreadable is None else f" that can be read: {unreadable}"
