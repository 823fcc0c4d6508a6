"""
What the app does about a day each time its timer fires: start the job, look for the result, tell it once.

All that is remembered is in the container with the results, so it does not matter which instance looks, how often, or
whether one dies in between. docs/decisions/0012 has the reasons.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from shared.clock import Clock, SystemClock
from shared.errors import BuswayError, TargetUnavailable
from shared.nightly.container_job import Execution
from shared.nightly.results import Note, Result, Results, UnreadableSummary, run_of
from shared.nightly.settings import READY, NightlySettings
from shared.protocols import NightTelemetry

_LOGGER = logging.getLogger("busway.nightly")

FIRST_WAIT = 5.0
_WAITS = (FIRST_WAIT, 4 * FIRST_WAIT)
_LONGEST_WAIT = 60.0
# A process that has claimed a day starts the job within this time, or has died.
STALE = timedelta(minutes=10)

CLEAN, FINDINGS, UNDECIDED = "clean", "findings", "could not decide"
NO_RESULT = "no result"
_WORDS = (CLEAN, FINDINGS, UNDECIDED)


class AttentionNeeded(BuswayError):
    """The night has something that a person has to look at; raised once, so that the invocation counts as failed."""


class Job(Protocol):
    """What can be started for a day; as `shared.nightly.container_job.ContainerJob`."""

    async def start(self, day: date) -> None:
        """Start it; raises TargetUnavailable or TargetRefused."""
        ...

    async def execution(self, day: date) -> Execution | None:
        """Return the execution that began last for *day*; raises as `start`."""
        ...


class Night:
    """The nightly reconciliation of an app."""

    def __init__(
        self,
        settings: NightlySettings,
        job: Job | None,
        telemetry: NightTelemetry,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Start *job*, or nothing where that is None; live by the machine's time unless given another *clock*."""
        self._settings = settings
        self._job = job
        self._telemetry = telemetry
        self._clock = clock or SystemClock()
        self._sleep = sleep

    async def look(self) -> None:
        """
        Do what there is to do now about the last day that is over, and the one before.

        Raises AttentionNeeded where something is told that a person has to look at, TargetUnavailable where the job or
        the results cannot be reached, TargetRefused where they let nobody in.
        """
        ready = timedelta(hours=READY.hour, minutes=READY.minute)
        last = (self._clock.now().astimezone(UTC) - ready).date() - timedelta(days=1)
        async with Results(self._settings.results) as results:
            try:
                # A result that came late is not lost because another day has begun.
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
            if self._job is not None:
                await self._start(results, self._job, day, Note(self._now()))
                return
            if self._clock.now() < self._due(day):
                return
        await self._follow(results, day, note or Note(self._now(), started=True))

    async def _start(self, results: Results, job: Job, day: date, note: Note) -> None:
        claimed = await results.save(day, note)
        if claimed is None:
            return  # another instance is at it
        try:
            by_hand = await self._started(job, day)
        except BuswayError as error:
            _LOGGER.error("night of %s: the job does not start: %s", day, error)  # noqa: TRY400 - the host logs the rest
            await results.forget(day, claimed)
            raise
        if await results.save(day, replace(claimed, started=True)) is not None:
            what = "is under way, somebody has started it" if by_hand else "has been started"
            _LOGGER.info("night of %s: the job %s", day, what)

    async def _started(self, job: Job, day: date) -> bool:
        """Start the job unless it is under way for *day*; tell whether it was, without having been started here."""
        tried = 0
        while True:
            try:
                # Asked before each attempt: one that failed may have started it all the same.
                found = await job.execution(day)
                if found is not None and found.is_under_way:
                    return tried == 0
                await job.start(day)
            except TargetUnavailable as error:
                if tried == len(_WAITS):
                    raise
                asked = 0.0 if error.retry_after is None else error.retry_after.total_seconds()
                await self._sleep(min(max(_WAITS[tried], asked), _LONGEST_WAIT))
                tried += 1
            else:
                return False

    async def _follow(self, results: Results, day: date, note: Note) -> None:
        result = await self._read(results, day)
        if isinstance(result, Result):
            await self._tell_result(results, day, note, result)
            return
        if self._job is not None and not note.started:
            if self._clock.now() - datetime.fromisoformat(note.claimed) >= STALE:
                await self._start(results, self._job, day, replace(note, claimed=self._now()))
            return
        execution = None if self._job is None else await self._job.execution(day)
        if execution is not None and not execution.is_under_way:
            # It may have ended between the two questions.
            result = await self._read(results, day)
            if isinstance(result, Result):
                await self._tell_result(results, day, note, result)
                return
            text = f"execution {execution.name} is {execution.status} and has left no result{_but(result)}"
            await self._tell_none(results, day, note, execution.name, text)
        elif self._clock.now() >= max(self._due(day), self._fair_time(note)):
            state = "Azure knows of no execution" if execution is None else f"execution {execution.name} is under way"
            text = f"there is no result by {self._settings.due:%H:%M} UTC"
            text += f"{'' if self._job is None else f', {state}'}{_but(result)}"
            await self._tell_none(results, day, note, "overdue", text)

    async def _tell_result(self, results: Results, day: date, note: Note, result: Result) -> None:
        if result.etag in note.told or await results.save(day, _told(note, result.etag)) is None:
            return
        verdict = _WORDS[result.exit_code]
        for task, findings in result.findings.items():
            for kind, count in findings.items():
                self._telemetry.finding(task, kind, count)
        self._telemetry.night(verdict)
        fields = {
            "busway.night": day.isoformat(),
            "busway.verdict": verdict,
            "busway.findings": {task: found for task, found in result.findings.items() if found},
            "busway.problems": dict(result.problems),
        }
        page = f"{results.where}/runs/{run_of(day)}/report.html"
        text = f"night of {day}: {verdict}. {result.sentence} Page: {page}"
        log = _LOGGER.info if result.exit_code == 0 else _LOGGER.error
        log("%s %s", text, json.dumps(fields, ensure_ascii=False), extra=fields)
        if result.exit_code != 0:
            raise AttentionNeeded(text)

    async def _tell_none(self, results: Results, day: date, note: Note, key: str, text: str) -> None:
        if key in note.told or await results.save(day, _told(note, key)) is None:
            return
        self._telemetry.night(NO_RESULT)
        told = f"night of {day}: {NO_RESULT}: {text}"
        fields = {"busway.night": day.isoformat(), "busway.verdict": NO_RESULT}
        _LOGGER.error("%s. %s", told, json.dumps(fields), extra=fields)
        raise AttentionNeeded(told)

    async def _read(self, results: Results, day: date) -> Result | UnreadableSummary | None:
        try:
            return await results.result(day)
        except UnreadableSummary as error:
            _LOGGER.warning("night of %s: %s", day, error)
            return error

    def _due(self, day: date) -> datetime:
        return datetime.combine(day + timedelta(days=1), self._settings.due, UTC)

    def _fair_time(self, note: Note) -> datetime:
        """Return until when a job may run that was started late: for as long as one that was started in time."""
        if self._job is None:
            return datetime.fromisoformat(note.claimed)
        whole = timedelta(hours=self._settings.due.hour, minutes=self._settings.due.minute)
        ready = timedelta(hours=READY.hour, minutes=READY.minute)
        return datetime.fromisoformat(note.claimed) + whole - ready

    def _now(self) -> str:
        return self._clock.now().astimezone(UTC).isoformat(timespec="seconds")


def _told(note: Note, key: str) -> Note:
    return replace(note, told=(*note.told, key))


def _but(unreadable: UnreadableSummary | None) -> str:
    return "" if unreadable is None else f" that can be read; {unreadable}"
