"""The webhook of Event Grid: handshake, both schemas, and an answer only after the outcome."""

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import azure.functions as func
import pytest

from functions.event_grid import register_webhook
from shared.amqp.values import string
from shared.clock import ManualClock
from shared.line.intake import Intake
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.line.text_form import TextForm
from shared.message.arrival import Origin
from shared.message.text_messages import check_event
from shared.message.ttl import Keep
from tests.fakes import JournalInMemory, OutputThatAccepts, OutputThatIsDown, clock_at_delivery, sleep_by
from tests.messages import message

type Receive = Callable[[func.HttpRequest], Coroutine[Any, Any, func.HttpResponse]]


def webhook(output: OutputThatAccepts, clock: ManualClock | None = None) -> Receive:
    target, clock = Target(output, "east", "orders"), clock or clock_at_delivery()
    rejects = Target(output, "east", "rejected")
    task = Task("take", Origin("grid", "orders"), [], Router([Route(target)]), rejects, Keep(), None)
    task = replace(task, opens_envelopes=True, opens_some=True, one_by_one=True, restore=check_event)
    line = Pipeline(task, JournalInMemory(), clock, sleep_by(clock))
    app = func.FunctionApp()
    register_webhook(app, "take", "orders", Intake(line, has_sessions=False), clock)
    (function,) = app.get_functions()
    trigger = function.get_dict_repr()["bindings"][0]
    assert (trigger["route"], str(trigger["authLevel"]).upper()) == ("events/orders", "FUNCTION")
    receive: Receive = function.get_user_function()
    return receive


def asked(receive: Receive, body: bytes = b"", method: str = "POST", **headers: str) -> tuple[int, bytes]:
    request = func.HttpRequest(method=method, url="/api/events/orders", headers=headers, body=body)
    answer = asyncio.run(receive(request))
    return answer.status_code, answer.get_body()


def event(identity: str = "1", **attributes: object) -> dict[str, object]:
    return {"specversion": "1.0", "id": identity, "source": "/shop", "type": "order", **attributes}


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        *(("eventgrid.azure.net", 200), ("eventgrid.azure.us", 200), ("eventgrid.azure.cn", 200)),
        *(("evil.example", 403), ("", 403), ("ä", 403), ("eventgrid.azure.net.evil.example", 403)),
    ],
)
def test_only_event_grid_may_deliver(origin: str, status: int) -> None:
    request = func.HttpRequest(method="OPTIONS", url="/", headers={"WebHook-Request-Origin": origin}, body=b"")
    answer = asyncio.run(webhook(OutputThatAccepts())(request))
    assert answer.status_code == status
    assert answer.headers.get("WebHook-Allowed-Origin") == (origin if status == 200 else None)


VALIDATION = {
    "id": "1",
    "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
    "data": {"validationCode": "A-1"},
}


@pytest.mark.parametrize("headers", [{}, {"aeg-event-type": "SubscriptionValidation"}])
def test_the_validation_of_the_event_grid_schema_is_answered(headers: dict[str, str]) -> None:
    answer = asked(webhook(OutputThatAccepts()), json.dumps([VALIDATION]).encode(), **headers)
    assert answer == (200, b'{"validationResponse": "A-1"}')


def test_an_event_with_the_type_of_a_validation_is_sent_like_the_others_of_its_request() -> None:
    output = OutputThatAccepts()
    receive = webhook(output)
    assert asked(receive, json.dumps([event("2"), VALIDATION | {"topic": "/t"}]).encode()) == (200, b"")
    assert asked(receive, json.dumps([VALIDATION]).encode(), **{"aeg-event-type": "Notification"}) == (200, b"")
    assert sorted(map(str, output.ids("orders"))) == ["1", "1", "2"]


@pytest.mark.parametrize("is_batch", [True, False])
def test_events_arrive_as_they_were_published(*, is_batch: bool) -> None:
    output = OutputThatAccepts()
    text = b'{"specversion":"1.0","id":"7","source":"/shop","type":"order","data":{"n":1e3}}'
    assert asked(webhook(output), b"[%b]" % text if is_batch else text)[0] == 200
    (found,) = output.messages("orders")
    assert (found.body, found.content_type) == (text, "application/cloudevents+json")
    assert found.message_id is not None
    assert found.message_id.payload == "7"


@pytest.mark.parametrize(
    ("time", "enqueued"),
    [
        ("2026-01-02T03:04:05.6789012Z", "2026-01-02T03:04:05.678Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05.000Z"),
        ("9999-12-31T23:59:59.9999999+00:00", "9999-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00", "0001-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59-01:00", None),
        ("0001-01-01T00:00:00+01:00", None),
        ("yesterday", None),
    ],
)
def test_the_time_of_an_event_is_its_enqueued_time(time: str, enqueued: str | None) -> None:
    output = OutputThatAccepts()
    assert asked(webhook(output), json.dumps(event(time=time)).encode())[0] == 200
    (found,) = output.messages("orders")
    assert found.application_property("repl-enqueue-time") == (None if enqueued is None else string(enqueued))


def test_an_event_of_the_event_grid_schema_arrives_as_json() -> None:
    output = OutputThatAccepts()
    text = b'{"id":"7","topic":"/t","subject":"s","eventType":"a","eventTime":"2026-01-01T00:00:00Z","data":{}}'
    assert asked(webhook(output), b"[%b]" % text)[0] == 200
    (found,) = output.messages("orders")
    assert (found.body, found.content_type) == (text, "application/json")


def test_an_envelope_is_opened_and_delivered_twice_is_sent_once() -> None:
    output = OutputThatAccepts()
    receive = webhook(output)
    text = TextForm("send", "grid/orders", "service-bus", 10**6).text(message(3, session_id="s"), None).encode()
    assert [asked(receive, text)[0], asked(receive, text)[0]] == [200, 200]
    (found,) = output.messages("orders")
    assert (found.session_id, found.body) == ("s", b"body")


@pytest.mark.parametrize("is_batch", [True, False])
def test_an_envelope_whose_attributes_event_grid_has_written_in_another_order_is_opened(*, is_batch: bool) -> None:
    output = OutputThatAccepts()
    receive = webhook(output)
    text = TextForm("send", "grid/orders", "service-bus", 10**6).text(message(3, session_id="s"), None)
    attributes = json.loads(text) | {"time": "2026-01-01T00:00:00Z"}
    orders = (sorted(attributes), sorted(attributes, reverse=True), list(attributes))
    for names in orders:
        written = json.dumps({name: attributes[name] for name in names})
        assert asked(receive, f"[{written}]".encode() if is_batch else written.encode())[0] == 200
    (found,) = output.messages("orders")
    assert (found.session_id, found.body) == ("s", b"body")


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("schema", ["event", "envelope"])
def test_an_event_with_the_source_id_and_time_of_another_does_not_suppress_it(schema: str, *, together: bool) -> None:
    output = OutputThatAccepts()
    receive = webhook(output)
    genuine = event("1", time="2026-01-02T03:04:05Z", data="pay Alice")
    if schema == "envelope":
        form = TextForm("send", "grid/orders", "service-bus", 10**6)
        genuine = json.loads(form.text(message(3), None))
    data = "data" if schema == "event" else "data_base64"
    forged = genuine | {data: base64.b64encode(message(3, body=b"forged").encode()).decode()}
    requests = [[forged, genuine]] if together else [[forged], [genuine], [genuine]]
    for request in requests:
        assert asked(receive, json.dumps(request).encode()) == (200, b"")
    assert len(output.messages("orders")) == 2


def test_no_success_is_answered_before_the_target_has_the_event() -> None:
    down = OutputThatIsDown()
    receive = webhook(down)
    status, body = asked(receive, json.dumps([event("1"), event("2")]).encode())
    assert (status, json.loads(body)) == (503, {"error": "2 of 2 events have no result yet"})
    down.put_up()
    assert asked(receive, json.dumps([event("1"), event("2")]).encode())[0] == 200
    assert sorted(str(each) for each in down.ids("orders")) == ["1", "2"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"1",
        b"[1]",
        b"{}",
        b"\xff",
        b"[" * 10_000,
        json.dumps(event(id=1)).encode(),
        json.dumps(event(source=None)).encode(),
        json.dumps([{"eventType": "Microsoft.EventGrid.SubscriptionValidationEvent"}]).encode(),
        base64.b64encode(b"{}"),
    ],
)
def test_what_is_not_an_event_is_a_bad_request(body: bytes) -> None:
    output = OutputThatAccepts()
    assert asked(webhook(output), body)[0] == 400
    assert output.calls == []


@pytest.mark.parametrize(
    "fault",
    [
        b'{"specversion":"1.0","id":3,"source":"/s","type":"t"}',
        b'{"any":"schema"}',
        b'["none"]',
        b'{"specversion":"1.0","id":"a","source":"/s","type":"t","data":%b}' % (b"9" * 5000),
    ],
)
def test_what_is_at_fault_among_events_is_rejected_and_the_events_are_sent(fault: bytes) -> None:
    output = OutputThatAccepts()
    receive = webhook(output)
    events = [json.dumps(event(str(number))).encode() for number in range(9)]
    body = b"[%b]" % b",".join([*events[:4], fault, *events[4:]])
    assert [asked(receive, body)[0], asked(receive, body)[0]] == [200, 200]
    assert sorted(map(str, output.ids("orders"))) == [str(number) for number in range(9)]
    (rejected,) = output.messages("rejected")
    assert rejected.body == fault
    assert rejected.application_property("repl-reject-reason") == string("InvalidEvent")


@pytest.mark.parametrize(
    "body",
    [
        b" " * (2 * 1024 * 1024 + 1),
        b"[%b%b]" % (json.dumps(event()).encode(), b",1" * 1_000_000),
        b"[%b1]" % (b"1," * 5000),
        b" \n[%b{}]" % (b"{}," * 5000),
    ],
)
def test_a_request_that_is_too_large_is_refused(body: bytes) -> None:
    output = OutputThatAccepts()
    assert asked(webhook(output), body)[0] == 413
    assert output.calls == []


def test_a_request_may_have_as_many_events_as_event_grid_delivers_at_once() -> None:
    output = OutputThatAccepts()
    body = json.dumps([event(str(number)) for number in range(5000)]).encode()
    assert asked(webhook(output), body) == (200, b"")
    assert len(output.ids("orders")) == 5000


def test_refused_requests_are_logged_once_a_minute_with_the_number_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = clock_at_delivery()
    receive = webhook(OutputThatAccepts(), clock)
    for _ in range(3):
        asked(receive, b"no json")
    asked(receive, method="OPTIONS")
    clock.advance(60)
    for _ in range(2):
        asked(receive, b"no json")
    start = "take: the webhook answers a request with"
    body = f"{start} 400: expected CloudEvents or events of Event Grid: the body is not JSON"
    expected = "expected eventgrid.azure.net, or that of another cloud of Azure"
    handshake = f"{start} 403: WebHook-Request-Origin: {expected}"
    assert caplog.messages == [body, handshake, f"{body}; 2 more since the last line"]
