"""
The container in which the job leaves its runs, and the app's own notes on each day beside them.

`runs/RUN/summary.json` is the job's. `nightly/DATE.json` is the app's: written only as it was read (ETag), so that of
two instances one starts the job, and one tells the result.
"""

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import date, timedelta
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlsplit

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.identity.aio import DefaultAzureCredential
from azure.storage.blob.aio import BlobClient, ContainerClient

from shared.errors import BuswayError, TargetRefused, TargetUnavailable

_NO_CONTAINER = "ContainerNotFound"
_UNDECIDED = "undecided"
_SECONDS = 30


class UnreadableSummary(Exception):
    """The summary of a run is not what the job writes; perhaps not yet."""


@dataclass(frozen=True)
class Result:
    """What a run says: its exit code, in words, and its findings by task and verdict."""

    etag: str
    exit_code: int
    verdict: str
    sentence: str
    findings: Mapping[str, Mapping[str, int]]
    problems: Mapping[str, int]


@dataclass(frozen=True)
class Note:
    """
    What the app has done about a day.

    Shape:   *claimed* is a time in ISO format; *told* names what has been told: the ETag of a result, an execution that
             failed, or that a result is overdue.
    """

    claimed: str
    started: bool = False
    told: tuple[str, ...] = ()
    etag: str | None = field(default=None, compare=False)


class Results:
    """The results in one container; open it as a context."""

    def __init__(self, url: str) -> None:
        """Reach the container of *url* by the signature in it, or else by the identity of the app."""
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
        credential: Any = self._signature or await self._opened.enter_async_context(DefaultAzureCredential())
        client = ContainerClient(
            self._account,
            self._name,
            credential=credential,
            retry_total=2,
            connection_timeout=_SECONDS,
            read_timeout=_SECONDS,
        )
        self._client = await self._opened.enter_async_context(client)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def result(self, day: date) -> Result | None:
        """Return what the run of *day* says, None where there is none; raises UnreadableSummary besides `read`'s."""
        found = await self._read(f"runs/{run_of(day)}/summary.json")
        if found is None:
            return None
        content, etag = found
        try:
            told = json.loads(content)
            code = told["exit_code"]
            findings = {str(task["task"]): _at_fault(task) for task in told["tasks"]}
            kinds = [str(problem["kind"]) for problem in told.get("problems") or ()]
            verdict, sentence = str(told["verdict"]), str(told["sentence"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableSummary(f"{run_of(day)}/summary.json: no summary of a run, {len(content)} bytes") from error
        if code not in (0, 1, 2) or isinstance(code, bool):
            raise UnreadableSummary(f"{run_of(day)}/summary.json: its exit code is none of 0, 1 and 2")
        problems = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
        return Result(etag, code, verdict, sentence, findings, problems)

    async def note(self, day: date) -> Note | None:
        """Return the app's note on *day*, None where there is none."""
        found = await self._read(_note(day))
        if found is None:
            return None
        content, etag = found
        try:
            told = json.loads(content)
            return Note(str(told["claimed"]), bool(told["started"]), tuple(map(str, told["told"])), etag)
        except (ValueError, KeyError, TypeError) as error:
            where = f"{self.where}/{_note(day)}"
            raise TargetRefused(f"{where}: no note of this app; delete it, and the day begins anew") from error

    async def save(self, day: date, note: Note) -> Note | None:
        """Write *note* in the place of what it was read from; return it as it is now, None where another was faster."""
        content = {name: value for name, value in asdict(note).items() if name != "etag"}
        text = json.dumps({"date": day.isoformat(), **content}, indent=1)
        condition: dict[str, Any] = (
            {"match_condition": MatchConditions.IfMissing}
            if note.etag is None
            else {"match_condition": MatchConditions.IfNotModified, "etag": note.etag}
        )
        try:
            saved = await self._blob(_note(day)).upload_blob(text.encode(), overwrite=True, **condition)
        except (ResourceExistsError, ResourceModifiedError):
            return None
        except ResourceNotFoundError as error:
            if note.etag is not None and _code(error) != _NO_CONTAINER:
                return None  # it has been deleted meanwhile
            raise self._translated(error) from error
        except AzureError as error:
            raise self._translated(error) from error
        return replace(note, etag=str(saved["etag"]))

    async def forget(self, day: date, note: Note) -> None:
        """Delete *note* if it still is as it was read."""
        try:
            await self._blob(_note(day)).delete_blob(etag=note.etag, match_condition=MatchConditions.IfNotModified)
        except (ResourceNotFoundError, ResourceModifiedError):
            return
        except AzureError as error:
            raise self._translated(error) from error

    async def _read(self, name: str) -> tuple[bytes, str] | None:
        """
        Return a blob and its ETag, None where there is none.

        Raises TargetUnavailable where the account is away, TargetRefused where it does not let the app in.
        """
        try:
            stream = await self._blob(name).download_blob()
            return await stream.readall(), str(stream.properties.etag)
        except ResourceNotFoundError as error:
            if _code(error) == _NO_CONTAINER:
                raise self._translated(error) from error
            return None
        except AzureError as error:
            raise self._translated(error) from error

    def _blob(self, name: str) -> BlobClient:
        return self._client.get_blob_client(f"{self._prefix}{name}")

    def _translated(self, error: AzureError) -> BuswayError:
        if isinstance(error, ClientAuthenticationError):
            return TargetRefused(f"{self.where}: the account lets the app in neither by identity nor by signature")
        if not isinstance(error, HttpResponseError) or error.status_code is None:
            return TargetUnavailable(f"{self.where}: the account cannot be reached, {type(error).__name__}")
        if _code(error) == _NO_CONTAINER:
            return TargetRefused(f"{self.where}: there is no such container")
        told = f"{error.status_code} ({code})" if (code := _code(error)) else str(error.status_code)
        if error.status_code < HTTPStatus.TOO_MANY_REQUESTS:
            hint = "expected the role Storage Blob Data Contributor for the app's identity"
            return TargetRefused(f"{self.where}: the account refuses, {told}; {hint}")
        return TargetUnavailable(f"{self.where}: the account is busy or failing, {told}")


def run_of(day: date) -> str:
    """Return the name of the run of *day*, as the job gives it."""
    return f"{day.isoformat()}T00--{(day + timedelta(days=1)).isoformat()}T00"


def _note(day: date) -> str:
    return f"nightly/{day.isoformat()}.json"


def _code(error: HttpResponseError) -> str:
    # The storage SDK adds it to the errors of azure.core, whose types do not have it.
    return str(getattr(error, "error_code", "") or "")


def _at_fault(task: Mapping[str, Any]) -> dict[str, int]:
    """Return the verdicts of a task that somebody has to look at; a message has one, and may have more findings."""
    verdicts = task["verdicts"]
    kinds = dict.fromkeys((*(task.get("findings") or ()), _UNDECIDED))
    return {str(kind): int(verdicts[kind]) for kind in kinds if verdicts.get(kind)}
