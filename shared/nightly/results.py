"""
The container to which the job writes its runs, with the app's notes on each day beside them.

The job writes `runs/RUN/summary.json`. The app writes `nightly/DATE.json`, under the condition that it is unchanged
(ETag), so that only one of two instances starts the job, and only one reports the result.
"""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self
from urllib.parse import urlsplit

from azure.storage.blob.aio import ContainerClient

from shared.access.identity import async_credential
from shared.errors import TargetRefused
from shared.stores.blobs import Blob
from shared.stores.container import BlobContainer
from shared.stores.documents import Changed

_UNDECIDED = "undecided"
_HOURS = "nightly/hours.json"
_TIMER = "nightly/timer.json"
_SECONDS = 30
_SETTLE = timedelta(minutes=10)
"""How long after its end the job waits for the last records of an hour."""


# The key in stored notes since the first version.
_REPORTED = "told"


class UnreadableSummary(Exception):
    """The summary of a run is not complete or not the job's; the job may still be writing it."""


@dataclass(frozen=True)
class Result:
    """The result of a run: its exit code, the verdict in words, and the findings by task and verdict."""

    etag: str
    exit_code: int
    verdict: str
    sentence: str
    findings: Mapping[str, Mapping[str, int]]
    problems: Mapping[str, int]
    new: Mapping[str, Mapping[str, int]]
    """The findings, without those that the previous run had too."""


@dataclass(frozen=True)
class Note:
    """
    What the app has done for a day.

    Shape:   *claimed* is a time in ISO format; *reported* names what has been reported: the ETag of a result, an
             execution that failed, a job that was started again, or an overdue result.
    """

    claimed: str
    started: bool = False
    reported: tuple[str, ...] = ()
    etag: str | None = field(default=None, compare=False)


class Results:
    """The results in one container; an async context manager."""

    def __init__(self, url: str) -> None:
        """Open the container of *url* with its signature, or with the app's identity."""
        parts = urlsplit(url)
        self._name, _, prefix = parts.path.strip("/").partition("/")
        if parts.hostname in ("127.0.0.1", "localhost"):
            # The emulator has the account in the path.
            account, self._name, prefix = (*parts.path.strip("/").split("/", 2), "", "")[:3]
            self._account = f"{parts.scheme}://{parts.netloc}/{account}"
        else:
            self._account = f"{parts.scheme}://{parts.netloc}"
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._signature = parts.query
        self.where = f"{self._account}/{self._name}{'/' + self._prefix.rstrip('/') if self._prefix else ''}"

    async def __aenter__(self) -> Self:
        self._opened = AsyncExitStack()
        credential: Any = self._signature or await self._opened.enter_async_context(async_credential())
        client = ContainerClient(
            self._account,
            self._name,
            credential=credential,
            retry_total=2,
            connection_timeout=_SECONDS,
            read_timeout=_SECONDS,
        )
        self._container = BlobContainer(
            await self._opened.enter_async_context(client),
            errors_name=f"{self._account}/{self._name}/",
            creates=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def of_run(self, run: str) -> Result | None:
        """
        Return the result of the *run* of this name, None if missing.

        Raises: UnreadableSummary, TargetUnavailable, TargetRefused.
        """
        found = await self._read(f"runs/{run}/summary.json")
        if found is None:
            return None
        try:
            summary = json.loads(found.content)
            code = summary["exit_code"]
            findings = {str(task["task"]): _findings(task) for task in summary["tasks"]}
            new = {str(task["task"]): _new(task) for task in summary["tasks"]}
            kinds = [str(problem["kind"]) for problem in summary.get("problems") or ()]
            verdict, sentence = str(summary["verdict"]), str(summary["sentence"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"{run}/summary.json: not the summary of a run ({len(found.content)} bytes)"
            raise UnreadableSummary(text) from error
        if code not in (0, 1, 2) or isinstance(code, bool):
            raise UnreadableSummary(f"{run}/summary.json: expected an exit code of 0, 1 or 2")
        problems = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
        return Result(found.version, code, verdict, sentence, findings, problems, new)

    async def note(self, day: date) -> Note | None:
        """Return the app's note on *day*, None if missing; raises TargetUnavailable, TargetRefused."""
        found = await self._read(_note(day))
        if found is None:
            return None
        try:
            fields = json.loads(found.content)
            reported = tuple(map(str, fields[_REPORTED]))
            return Note(str(fields["claimed"]), bool(fields["started"]), reported, found.version)
        except (ValueError, KeyError, TypeError) as error:
            where = f"{self.where}/{_note(day)}"
            raise TargetRefused(f"{where}: not a note of this app; delete it to process the day again") from error

    async def save(self, day: date, note: Note) -> Note | None:
        """Replace the note that was read with *note*; return it with its new version, None if another writer won."""
        content = {"date": day.isoformat(), "claimed": note.claimed, "started": note.started, _REPORTED: note.reported}
        text = json.dumps(content, indent=1)
        try:
            version = await self._container.write_version(f"{self._prefix}{_note(day)}", text.encode(), note.etag)
        except Changed:
            return None
        return replace(note, etag=version)

    async def forget(self, day: date, note: Note) -> None:
        """Delete *note* if nobody has replaced it since it was read."""
        await self._container.delete_version(f"{self._prefix}{_note(day)}", note.etag)

    async def reported_hour(self) -> tuple[datetime | None, str | None]:
        """Return the last hour that was reported, with the version of the note; None for the first."""
        found = await self._read(_HOURS)
        if found is None:
            return None, None
        try:
            return datetime.fromisoformat(json.loads(found.content)[_REPORTED]).astimezone(UTC), found.version
        except (ValueError, KeyError, TypeError) as error:
            raise TargetRefused(f"{self.where}/{_HOURS}: not a note of this app; delete it") from error

    async def save_reported_hour(self, hour: datetime, version: str | None) -> str | None:
        """Replace the note of this *version*; return its new version, None if another writer won."""
        text = json.dumps({_REPORTED: hour.isoformat()})
        try:
            return await self._container.write_version(f"{self._prefix}{_HOURS}", text.encode(), version)
        except Changed:
            return None

    async def mark_timer(self) -> None:
        """Write a mark whose age says when the app's timer ran last; the hourly job looks at it."""
        await self._container.replace(f"{self._prefix}{_TIMER}", b"{}")

    async def _read(self, name: str) -> Blob | None:
        return await self._container.read_all(f"{self._prefix}{name}")


def run_of(day: date) -> str:
    """Return the name that the job gives the run of *day*."""
    return f"{day.isoformat()}T00--{(day + timedelta(days=1)).isoformat()}T00"


def run_of_hour(start: datetime) -> str:
    """Return the name that the job gives the run of the hour from *start* on."""
    return f"{start:%Y-%m-%dT%H}--{start + timedelta(hours=1):%Y-%m-%dT%H}"


def last_closed_hour(now: datetime) -> datetime:
    """Return the start of the last hour whose journal is complete."""
    return (now.astimezone(UTC) - _SETTLE).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)


def page_of(where: str, run: str) -> str:
    """Return the address of the page of *run*, in the results at *where*."""
    return f"{where}/runs/{run}/report.html"


def _note(day: date) -> str:
    return f"nightly/{day.isoformat()}.json"


def _new(task: Mapping[str, Any]) -> dict[str, int]:
    """Return the findings of a task that the previous run did not have; all of a job that does not count them."""
    found = task.get("new")
    return _findings(task) if found is None else {str(kind): int(count) for kind, count in found.items() if count}


def _findings(task: Mapping[str, Any]) -> dict[str, int]:
    """Return the verdicts of a task that need attention; each message has one verdict, and may have more findings."""
    verdicts = task["verdicts"]
    kinds = dict.fromkeys((*(task.get("findings") or ()), _UNDECIDED))
    return {str(kind): int(verdicts[kind]) for kind in kinds if verdicts.get(kind)}
