"""Answers over HTTP."""

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
