"""Answers over HTTP."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import azure.functions as func
import msgspec

from shared.errors import BuswayError, ConfigError
from shared.printable import printable

type Serve = Callable[[func.HttpRequest], Awaitable[func.HttpResponse]]

# The address has the function key.
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}


def answer(content: object) -> func.HttpResponse:
    """Return *content* as JSON."""
    return response(msgspec.json.encode(content), "application/json")


def failure(text: str, code: int) -> func.HttpResponse:
    """Return an error as JSON."""
    return response(msgspec.json.encode({"error": printable(text)}), "application/json", code)


def response(
    content: bytes, kind: str, code: int = 200, headers: Mapping[str, str] = MappingProxyType({})
) -> func.HttpResponse:
    """Return an answer that no cache keeps."""
    return func.HttpResponse(content, status_code=code, headers={**_HEADERS, **headers}, mimetype=kind)


async def answered(serve: Serve, request: func.HttpRequest) -> func.HttpResponse:
    """Return the answer of *serve*, or its error: 400 if the request or the configuration is wrong, 503 otherwise."""
    try:
        return await serve(request)
    except ConfigError as error:
        return failure("; ".join(map(str, error.problems)), 400)
    except BuswayError as error:
        return failure(str(error), 503)


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
            self._answers.pop(key, None)
            raise

    def forget(self) -> None:
        """Ask again at the next question."""
        self._answers.clear()
