"""
The webhook of Event Grid: one HTTP function for each task whose source is a topic of Event Grid.

1. The answer is 200 only when every event of the request has its outcome on record. Otherwise it is 503, and Event Grid
   delivers the events again.
2. The host asks for the key of the function (`?code=` in the address of the subscription), also in the handshake. Only
   Event Grid is allowed as the origin.
3. What is at fault among other events goes to `rejects`: an answer of 400 would end the delivery of all of them.
4. A request that is refused is logged, in one line a minute for each status, without anything of the request.

Source: CloudEvents 1.0.2, HTTP 1.1 Web Hooks; Microsoft Learn, "Webhook event delivery" and "Endpoint validation".
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import azure.functions as func

from functions.answers import failure, response
from shared.clock import Clock, SystemClock
from shared.codecs.cloudevents import BATCH, INVALID, TOO_MANY, split_batch
from shared.codecs.envelope import event_key, in_order
from shared.ends.event_grid.endpoint import SERVICES
from shared.errors import BuswayError, MessageRejected
from shared.line.intake import Intake
from shared.message.text_messages import event_message, fault_message
from shared.printable import printable

_LOGGER = logging.getLogger("busway.event_grid")

MOST_BYTES = 2 * 1024 * 1024
_PAUSE_SECONDS = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"
_VALIDATING = "SubscriptionValidation"
_EVENT, _JSON = "application/cloudevents+json", "application/json"


class _Refusals:
    """Answers and logs the requests to one webhook that are refused."""

    def __init__(self, task: str, clock: Clock) -> None:
        self._task = task
        self._clock = clock
        self._last: dict[int, float] = {}
        self._unlogged: Counter[int] = Counter()

    def answer(self, text: str, status: int) -> func.HttpResponse:
        """Return the answer; many such requests add one line a minute to the log."""
        now = self._clock.monotonic()
        if now - self._last.get(status, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
            self._unlogged[status] += 1
        else:
            self._last[status] = now
            more = f"; {count} more since the last line" if (count := self._unlogged.pop(status, 0)) else ""
            _LOGGER.warning("%s: the webhook answers a request with %d: %s%s", self._task, status, text, more)
        return failure(text, status)


def register_webhook(
    app: func.FunctionApp, task: str, webhook: str, intake: Intake, clock: Clock | None = None
) -> None:
    """Add the function of *task*, which takes events at events/*webhook*."""
    refusals = _Refusals(task, clock or SystemClock())

    async def receive(request: func.HttpRequest) -> func.HttpResponse:
        if request.method == "OPTIONS":
            return _handshake(request, refusals)
        return await _received(request, task, intake, refusals)

    decorated = app.route(
        route=f"events/{webhook}",
        trigger_arg_name="request",
        methods=["POST", "OPTIONS"],
        auth_level=func.AuthLevel.FUNCTION,
    )(receive)
    app.function_name(task)(decorated)


def _handshake(request: func.HttpRequest, refusals: _Refusals) -> func.HttpResponse:
    """Agree to get events from Event Grid, and from nobody else."""
    origin = request.headers.get("WebHook-Request-Origin", "").strip().lower()
    if origin not in SERVICES:
        return refusals.answer(
            f"WebHook-Request-Origin: expected {SERVICES[0]}, or that of another cloud of Azure", 403
        )
    return response(b"", _JSON, headers={"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*"})


async def _received(request: func.HttpRequest, task: str, intake: Intake, refusals: _Refusals) -> func.HttpResponse:
    body = request.get_body()
    if len(body) > MOST_BYTES:
        return refusals.answer(f"the request has {len(body)} bytes, expected at most {MOST_BYTES}", 413)
    try:
        contents = _contents(body, request.headers)
    except (ValueError, RecursionError, MessageRejected) as fault:
        reason = fault.description if isinstance(fault, MessageRejected) else "the body is not JSON"
        status = 413 if isinstance(fault, MessageRejected) and fault.reason == TOO_MANY else 400
        return refusals.answer(f"expected CloudEvents or events of Event Grid: {reason}", status)
    if isinstance(contents, str):
        return response(json.dumps({"validationResponse": contents}).encode(), _JSON)
    runs = (intake.run(content, key=key) for content, key in contents)
    results = await asyncio.gather(*runs, return_exceptions=True)
    errors = [result for result in results if result is not None]
    for error in errors:
        if not isinstance(error, BuswayError):
            raise error
    if errors:
        _LOGGER.warning("%s: events stay at Event Grid: %s", task, printable(str(errors[0])))
        return failure(f"{len(errors)} of {len(results)} events have no result yet", 503)
    return response(b"", _JSON)


def _contents(body: bytes, headers: Mapping[str, str]) -> Sequence[tuple[bytes, bytes | None]] | str:
    """
    Return an encoded message for each event, with its key, or the code of a validation.

    A CloudEvent comes alone or in an array; events of the schema of Event Grid always come in an array. What is among
    events and is not one becomes a message that the line rejects.

    Raises: MessageRejected, ValueError or RecursionError if nothing is an event.
    """
    is_array = body.lstrip()[:1] == b"["
    if headers.get("Content-Type", "").startswith(BATCH) and not is_array:
        raise MessageRejected(INVALID, "got a JSON value that is not an array")
    texts = split_batch(body) if is_array else [body]
    # A publisher can give its events this type too; those are delivered as notifications, and with others.
    if len(texts) == 1 and headers.get("aeg-event-type", _VALIDATING) == _VALIDATING:
        event = _event(texts[0])
        if event.get("eventType") == _VALIDATION:
            return _code(event)
    found, faults = [], []
    for text in texts:
        try:
            found.append(_content(text))
        except (ValueError, RecursionError, MessageRejected) as fault:
            faults.append(fault)
            found.append((fault_message(text), None))
    if faults and len(faults) == len(texts):
        raise faults[0]
    return found


def _content(text: bytes) -> tuple[bytes, bytes | None]:
    event = _event(text)
    text = in_order(event, text)
    return _message(event, text), event_key(text)


def _event(text: bytes) -> dict[str, Any]:
    event = json.loads(text)
    if not isinstance(event, dict):
        raise MessageRejected(INVALID, "got a JSON value that is not an object")
    return event


def _code(event: dict[str, Any]) -> str:
    data = event.get("data")
    code = data.get("validationCode") if isinstance(data, dict) else None
    if not isinstance(code, str):
        raise MessageRejected(INVALID, "got a validation without validationCode")
    return code


def _message(event: dict[str, Any], text: bytes) -> bytes:
    is_cloud_event = "specversion" in event
    source, time = (event.get(name) for name in (("source", "time") if is_cloud_event else ("topic", "eventTime")))
    identity = event.get("id")
    if not isinstance(identity, str) or not identity or (is_cloud_event and not isinstance(source, str)):
        raise MessageRejected(INVALID, "got an event without id or source")
    enqueued = _milliseconds(time) if isinstance(time, str) else None
    kind = _EVENT if is_cloud_event else _JSON
    return event_message(text, enqueued, identity, kind)


def _milliseconds(time: str) -> int | None:
    """Return a time in milliseconds since 1970, None for one that is not in the calendar in UTC."""
    try:
        at = datetime.fromisoformat(time)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    # Rounded down, in whole numbers: the last time of .NET would be in the year 10000.
    return (at - _EPOCH) // timedelta(milliseconds=1)
