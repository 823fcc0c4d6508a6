"""The status over HTTP: the dashboard, and the JSON that it and other programs read. Read-only."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import azure.functions as func
import msgspec

from functions.dashboard import page
from shared.config.files import Configuration
from shared.config.status_assembly import StatusReader
from shared.status.model import History, Status

NAME = "busway-status"
ROUTE = "status/{what?}"

_STATUS_SECONDS = 5.0
_HISTORY_SECONDS = 30.0
_HISTORY_HOURS = 3
_LONGEST_HISTORY_HOURS = 24
# The address has the function key.
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}


class Remembered[Key, Value]:
    """Answers repeated questions from memory for some seconds, so that many viewers cost as much as one."""

    def __init__(self, ask: Callable[[Key], Awaitable[Value]], seconds: float) -> None:
        """Ask with *ask*, again after *seconds*."""
        self._ask = ask
        self._seconds = seconds
        self._answers: dict[Key, tuple[float, asyncio.Task[Value]]] = {}

    async def __call__(self, key: Key) -> Value:
        """Return the answer for *key*; callers that come meanwhile wait for the same one."""
        now = time.monotonic()
        for old in [each for each, (until, _) in self._answers.items() if until <= now]:
            del self._answers[old]
        if key not in self._answers:
            self._answers[key] = now + self._seconds, asyncio.ensure_future(self._ask(key))
        answer = self._answers[key][1]
        try:
            return await asyncio.shield(answer)
        except Exception:
            # Another caller may have asked again already.
            if self._answers.get(key, (0.0, None))[1] is answer:
                del self._answers[key]
            raise


def register_status(app: func.FunctionApp, configuration: Configuration, settings: Mapping[str, str]) -> None:
    """
    Add the function that serves the dashboard at `status`, and `status/json` and `status/history`.

    One function, so that one function key opens the page and what it reads.
    """
    reader = StatusReader(configuration, settings)

    async def read(_: str) -> Status:
        return await reader.read()

    async def read_history(hours: int) -> History:
        return await reader.history(hours=hours)

    status, history = Remembered(read, _STATUS_SECONDS), Remembered(read_history, _HISTORY_SECONDS)

    async def serve(request: func.HttpRequest) -> func.HttpResponse:
        match (request.route_params.get("what") or "").lower():
            case "":
                found = page()
                return _response(found.content, "text/html", headers={"Content-Security-Policy": found.policy})
            case "json":
                return _json(msgspec.json.encode(await status("")))
            case "history":
                hours = request.params.get("hours", str(_HISTORY_HOURS))
                if not (hours.isascii() and hours.isdigit() and 1 <= int(hours) <= _LONGEST_HISTORY_HOURS):
                    text = f"hours: expected a whole number from 1 to {_LONGEST_HISTORY_HOURS}"
                    return _json(msgspec.json.encode({"error": text}), 400)
                return _json(msgspec.json.encode(await history(int(hours))))
            case _:
                return _json(msgspec.json.encode({"error": "unknown: expected json or history"}), 404)

    decorated = app.route(route=ROUTE, trigger_arg_name="request", methods=["GET"], auth_level=func.AuthLevel.FUNCTION)(
        serve
    )
    app.function_name(NAME)(decorated)


def _json(content: bytes, code: int = 200) -> func.HttpResponse:
    return _response(content, "application/json", code)


def _response(
    content: bytes, kind: str, code: int = 200, headers: Mapping[str, str] = MappingProxyType({})
) -> func.HttpResponse:
    return func.HttpResponse(content, status_code=code, headers={**_HEADERS, **headers}, mimetype=kind)
