"""
An Azure Container Apps job, started for a day and watched through Azure Resource Manager.

The `--date` among an execution's arguments says which day it is for, so no other state is needed. To start a job with
other arguments, the whole container must be sent again, which is why the job is read first.

Source: Azure REST API reference, Container Apps 2024-03-01: Jobs (Get, Start), Jobs Executions (List).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from http import HTTPStatus
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from azure.core.exceptions import AzureError, ClientAuthenticationError

from shared.access.identity import async_credential
from shared.errors import BuswayError, TargetRefused, TargetUnavailable, requested_wait

API_VERSION = "2024-03-01"
DATE = "--date"

_SECONDS = aiohttp.ClientTimeout(total=30)
_OF_AN_EXECUTION = ("image", "name", "command", "args", "env")
_RUNNING = frozenset(("Running", "Processing", "Unknown"))
# Errors for which a retry may help: a conflict with another operation on the job, and throttling.
_PASSING = frozenset((HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS))


@dataclass(frozen=True)
class Execution:
    """One execution of the job for a day."""

    name: str
    status: str
    started: str

    @property
    def is_running(self) -> bool:
        """Whether it may still write a result."""
        return self.status in _RUNNING


class ContainerJob:
    """A job of Container Apps, with the identity of the app (DefaultAzureCredential)."""

    def __init__(self, url: str) -> None:
        """Use the job with this *url* in Resource Manager, without a query."""
        self._url = url
        parts = urlsplit(url)
        self._scope = f"{parts.scheme}://{parts.netloc}/.default"
        self._where = f"job {parts.path.rpartition('/')[2]}"

    async def start(self, day: date) -> None:
        """Start the job for *day*; raises TargetUnavailable if a retry may help, TargetRefused if not."""
        job = await self._ask("GET", "")
        try:
            template = job["properties"]["template"]
            containers = [_of_execution(each) for each in template["containers"]]
            initial = [_of_execution(each) for each in template.get("initContainers") or ()]
            containers[0]["args"] = _with_date(containers[0].get("args") or (), day)
        except (KeyError, IndexError, TypeError) as error:
            raise TargetRefused(f"{self._where}: its definition in Azure has no container to start") from error
        content: dict[str, Any] = {"containers": containers}
        if initial:
            content["initContainers"] = initial
        await self._ask("POST", "/start", content)

    async def execution(self, day: date) -> Execution | None:
        """Return the execution for *day* that started last, None if Azure has none; raises as `start`."""
        found = []
        listed = await self._ask("GET", "/executions")
        while True:
            for each in listed.get("value") or ():
                properties = each.get("properties") or {}
                if _is_for(properties.get("template"), day):
                    status, started = str(properties.get("status")), str(properties.get("startTime") or "")
                    found.append(Execution(str(each.get("name")), status, started))
            following = listed.get("nextLink")
            if not following:
                break
            if urlsplit(following).netloc != urlsplit(self._url).netloc:
                raise TargetRefused(
                    f"{self._where}: the list of executions continues at another host, expected the same one"
                )
            listed = await self._ask("GET", following=following)
        return max(found, key=lambda each: each.started, default=None)

    async def _ask(
        self, method: str, path: str = "", content: object = None, *, following: str | None = None
    ) -> Mapping[str, Any]:
        url = following or f"{self._url}{path}?api-version={API_VERSION}"
        try:
            async with async_credential() as credential:
                token = (await credential.get_token(self._scope)).token
            async with (
                aiohttp.ClientSession(timeout=_SECONDS) as session,
                session.request(
                    method, url, json=content, headers={"Authorization": f"Bearer {token}"}, allow_redirects=False
                ) as answer,
            ):
                if not answer.ok:
                    raise _translate(self._where, answer.status, await answer.read(), answer.headers)
                body = await answer.read()
        except ClientAuthenticationError as error:
            raise TargetRefused(f"{self._where}: the app's identity has no token for Azure Resource Manager") from error
        except (aiohttp.ClientError, AzureError, TimeoutError, OSError) as error:
            text = f"{self._where}: Azure Resource Manager cannot be reached, {type(error).__name__}"
            raise TargetUnavailable(text) from error
        if method == "POST":
            return {}  # Some versions name the execution here, an accepted request has no body at all.
        try:
            read = json.loads(body)
        except ValueError:
            read = None
        if not isinstance(read, dict):
            raise TargetUnavailable(f"{self._where}: the answer of Azure Resource Manager is not a JSON object")
        return read


def _of_execution(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a container that an execution accepts, which are fewer than the job has."""
    kept = {name: container[name] for name in _OF_AN_EXECUTION if container.get(name) is not None}
    resources = {name: value for name, value in (container.get("resources") or {}).items() if name in ("cpu", "memory")}
    return {**kept, **({"resources": resources} if resources else {})}


def _with_date(arguments: object, day: date) -> list[str]:
    """Return *arguments* with `--date` set to *day*."""
    kept = [str(argument) for argument in arguments] if isinstance(arguments, (list, tuple)) else []
    while DATE in kept:
        at = kept.index(DATE)
        del kept[at : at + 2]
    return [*(each for each in kept if not each.startswith(f"{DATE}=")), DATE, day.isoformat()]


def _is_for(template: object, day: date) -> bool:
    containers = template.get("containers") if isinstance(template, dict) else None
    arguments = (containers[0].get("args") or []) if containers else []
    dated = [value for name, value in pairwise(arguments) if name == DATE]
    dated += [argument.removeprefix(f"{DATE}=") for argument in arguments if str(argument).startswith(f"{DATE}=")]
    return day.isoformat() in dated


def _translate(where: str, status: int, content: bytes, headers: Mapping[str, str]) -> BuswayError:
    try:
        code = json.loads(content)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    text = f"{status} ({code})" if isinstance(code, str) and code.isalnum() else str(status)
    if status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        wait = requested_wait(headers.get("Retry-After"))
        return TargetUnavailable(f"{where}: Azure Resource Manager is busy or failing, {text}", retry_after=wait)
    hint = "expected an existing job, and the role Container Apps Jobs Operator on it for the app's identity"
    return TargetRefused(f"{where}: Azure Resource Manager refuses the request, {text}; {hint}")
