"""The JSON API of the administration: state, messages, events, connections, faults and hubs."""

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from broker.tests.admin_requests import WEST, AdminRequests
from broker.tests.sdk_calls import Bus
from busway_broker.admin.messages import MAX_BODY
from busway_broker.core.content import read_content
from busway_broker.thread import RunningBroker
from cli.property_types import date_time_offset, decimal, time_span, uri
from shared.amqp.values import char, double, timestamp, uuid
from tests.messages import delivered

NAMESPACES = (WEST,)


def test_a_message_is_sent_and_peeked(bus: Bus, requests: AdminRequests) -> None:
    message = {
        "body": "héllo",
        "message_id": "1",
        "subject": "s",
        "content_type": "text/plain",
        "session_id": "k",
        "partition_key": "k",
        "correlation_id": "c",
        "application_properties": {"text": "t", "whole": 5, "large": 2**40, "float": 1.5, "yes": True, "none": None},
    }
    assert requests.json("POST", "messages?path=orders", message) == (201, {})
    (received,) = bus.receive("orders", 1)
    assert (str(received), received.message_id, received.subject) == ("héllo", "1", "s")
    assert (received.content_type, received.session_id, received.correlation_id) == ("text/plain", "k", "c")
    (found,) = requests.json("GET", "messages?path=orders&body=true")[1]
    assert found.items() >= message.items()
    assert "body" not in requests.json("GET", "messages?path=orders")[1][0]


def test_dead_letters_show_why(bus: Bus, requests: AdminRequests) -> None:
    bus.publish("orders", [ServiceBusMessage("a"), ServiceBusMessage("b")])
    with bus.client.get_queue_receiver("orders") as receiver:
        for message in receiver.receive_messages(2):
            receiver.dead_letter_message(message, reason="why", error_description="how")
    found = requests.json("GET", "messages?path=orders/$DeadLetterQueue&body=true&from=2")[1]
    assert [(each["body"], each["dead_letter_reason"], each["dead_letter_description"]) for each in found] == [
        ("b", "why", "how")
    ]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"data_body": b"\xff\x00"}, {"body_base64": "/wA="}),
        ({"data_body": b""}, {"body": ""}),
        ({"data_body": "é".encode() * MAX_BODY}, {"body": "é" * (MAX_BODY // 2), "body_size": 2 * MAX_BODY}),
        ({"data_body": b"\xff" * (MAX_BODY + 1)}, {"body_size": MAX_BODY + 1}),
        ({"value_body": {"key": [1, b"\x00", None]}}, {"body": {"key": [1, "AA==", None]}}),
        ({"sequence_body": [1, "two"]}, {"body": [1, "two"]}),
    ],
)
def test_every_kind_of_body_is_shown(
    bus: Bus, requests: AdminRequests, body: dict[str, Any], found: dict[str, Any]
) -> None:
    bus.send("orders", AmqpAnnotatedMessage(**body))
    (message,) = requests.json("GET", "messages?path=orders&body=true")[1]
    assert message.items() >= found.items()


def test_values_of_every_type_are_shown_as_what_they_are(broker: RunningBroker, requests: AdminRequests) -> None:
    named = {
        "price": decimal(Decimal("12.50")),
        "exact": decimal(Decimal("0.1234567890123456789012345678")),
        "when": date_time_offset(638_000_000_000_000_001),
        "day": timestamp(0),
        "wait": time_span(-1),
        "link": uri("https://example.test/a"),
        "guid": uuid(UUID(int=7)),
        "grade": char("A"),
        "rate": double(float("inf")),
    }
    raw = delivered(None, named=named)
    broker.inspect("west", lambda each: each.target("orders").publish(read_content(raw)))
    (message,) = requests.json("GET", "messages?path=orders&body=true")[1]
    assert message["application_properties"] == {
        "price": 12.5,
        "exact": "0.1234567890123456789012345678",
        "when": "2022-09-28T22:13:20.0000001Z",
        "day": "1970-01-01T00:00:00Z",
        "wait": "-00:00:00.0000001",
        "link": "https://example.test/a",
        "guid": str(UUID(int=7)),
        "grade": "A",
        "rate": "inf",
    }


def test_events_are_sent_and_read(requests: AdminRequests) -> None:
    event = {"partition_key": "k", "application_properties": {"n": 1}}
    for body in ("a", "b"):
        assert requests.json("POST", "events?hub=hub", event | {"body": body}) == (201, {})
    found = [each for partition in "01" for each in requests.json("GET", f"events?hub=hub&partition={partition}")[1]]
    assert [each["body"] for each in found] == ["a", "b"]
    assert all(each.items() >= event.items() for each in found)


def test_connections_are_listed_with_their_links(bus: Bus, requests: AdminRequests) -> None:
    with bus.client.get_queue_sender("orders"):
        (found,) = requests.json("GET", "connections")[1]
        assert found["transport"] == "TCP"
        assert {"path": "orders", "role": "sender"} in found["links"]


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000", "http://[", "null", ""])
def test_a_page_of_another_site_is_refused(broker: RunningBroker, requests: AdminRequests, origin: str) -> None:
    headers = {"Content-Type": "application/json", "Origin": origin}
    assert requests.text("POST", "/$busway/messages?path=orders", '{"body": "x"}', **headers)[0] in (400, 401)
    assert requests.text("GET", "/$busway", **headers)[0] in (400, 401)
    assert broker.counts("west")["orders"].active == 0
    assert requests.json("GET", "", Origin=requests.address) == requests.json("GET", "")


def test_the_state_is_shown_and_reset(bus: Bus, requests: AdminRequests) -> None:
    bus.publish("orders", [ServiceBusMessage("secret body", message_id="one"), ServiceBusMessage("two")])
    with bus.client.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(1, max_wait_time=2)
        assert requests.json("GET", "counts")[1]["orders"]["active"] == 2
        status, shown = requests.json("GET", "")
        assert (status, shown["name"], shown["queues"]["orders"]["counts"]["active"]) == (200, "west", 2)
        assert shown["topics"]["events"]["subscriptions"]["all"]["rules"] == ["$Default"]
        assert len(shown["hubs"]["hub"]["partitions"]) == 2
        _, messages = requests.json("GET", "messages?path=orders")
        assert (messages[0]["message_id"], messages[0]["is_locked"]) == ("one", True)
        assert "secret" not in json.dumps(messages)
        assert len(requests.json("GET", "messages?path=orders&limit=1")[1]) == 1
        assert requests.json("GET", "messages?path=orders/$deadletterqueue") == (200, [])
        for empty in ("events", "events/subscriptions/all"):
            assert requests.json("GET", f"messages?path={empty}") == (200, [])
    assert requests.json("POST", "reset") == (200, {})
    assert requests.json("GET", "messages?path=orders") == (200, [])


def test_faults_are_set_shown_and_cleared(bus: Bus, requests: AdminRequests) -> None:
    status, faults = requests.json("POST", "faults", {"effect": "throttle", "entity": "orders", "operations": ["send"]})
    assert (status, faults[0]["effect"], faults[0]["struck"]) == (201, "throttle", 0)
    with pytest.raises(ServiceBusServerBusyError):
        bus.send("orders", ServiceBusMessage("body"))
    assert requests.json("GET", "faults")[1][0]["struck"] == 1
    assert requests.json("DELETE", "faults") == (200, [])
    bus.send("orders", ServiceBusMessage("body"))


@pytest.mark.parametrize(
    ("asked", "status", "reason"),
    [
        (("POST", "messages?path=orders", {"bodi": "x"}), 400, "bodi: unknown"),
        (("POST", "messages?path=orders", {"body": 1}), 400, "body: expected text"),
        (("POST", "messages?path=orders", {"application_properties": []}), 400, "expected an object"),
        (("POST", "messages?path=orders", {"application_properties": {"x": [1]}}), 400, "application_properties.x"),
        (("POST", "messages?path=orders", {"application_properties": {"x": 2**70}}), 400, "application_properties.x"),
        (("POST", "messages?path=orders", {"subject": 5}), 400, "subject: expected text"),
        (("POST", "messages?path=orders", []), 400, "expected a message"),
        (("GET", "messages?path=orders&from=x", None), 400, "from is 'x'"),
        (("POST", "messages?path=missing", {}), 404, "could not be found"),
        (("POST", "messages?path=events/Subscriptions/all", {}), 400, "subscription"),
        (("POST", "events?hub=missing", {}), 404, "could not be found"),
        (("GET", "events?hub=hub&partition=7", None), 400, "expected 0 to 1"),
        (("GET", "nonsense", None), 404, ""),
        (("POST", "counts", None), 405, ""),
        (("PATCH", "reset", None), 405, ""),
        (("POST", "hubs", {"name": "new", "retention_hours": -5}), 400, ""),
        (("POST", "hubs", {"name": "new", "retention_hours": 10**12}), 400, ""),
        (("POST", "hubs", {"name": "new", "partition_count": True}), 400, ""),
        (("POST", "hubs", {"name": "new", "consumer_groups": [5]}), 400, ""),
        (("GET", "messages?path=orders&limit=99999999999999999999", None), 400, ""),
        (("POST", "messages?path=orders", {"body": "\ud800"}), 400, ""),
        (("POST", "clock", {"advance": 60}), 400, ""),
        (("POST", "clock", {"advance": True}), 400, ""),
        (("POST", "clock", {"advance": 0}), 400, ""),
        (("POST", "clock", {"seconds": 1}), 400, ""),
        (("GET", "messages?path=missing", None), 404, ""),
        (("GET", "messages?path=orders&limit=x", None), 400, ""),
        (("POST", "faults", {"effect": "nonsense"}), 400, ""),
        (("POST", "faults", []), 400, ""),
        (("POST", "faults", None), 400, ""),
    ],
)
def test_an_invalid_request_is_answered_with_the_reason(
    requests: AdminRequests, asked: tuple[str, str, object], status: int, reason: str
) -> None:
    found, answer = requests.json(*asked)
    assert found == status
    assert answer["error"]
    assert reason in answer["error"]


def test_a_body_that_is_not_json_is_refused(requests: AdminRequests) -> None:
    status, answer = requests.text("POST", "/$busway/faults", "{", **{"Content-Type": "application/json"})
    assert (status, "the body is not JSON: " in answer) == (400, True)
    deep = "[" * 100_000
    assert requests.text("POST", "/$busway/faults", deep, **{"Content-Type": "application/json"})[0] == 400


def test_hubs_are_created_and_deleted(broker: RunningBroker, requests: AdminRequests) -> None:
    body = {"name": "new", "partition_count": 3, "consumer_groups": ["g"], "retention_hours": 2}
    assert requests.json("POST", "hubs", body) == (201, {})
    assert requests.json("POST", "events?hub=new", {"body": "x"})[0] == 201
    assert len(requests.json("GET", "")[1]["hubs"]["new"]["partitions"]) == 3
    for wrong in ({"name": "new"}, {"name": 5}, {"name": "other", "partition_count": 0}, {"nam": "other"}, {}):
        assert requests.json("POST", "hubs", wrong)[0] == 400
    assert requests.json("DELETE", "hubs?hub=new") == (200, {})
    assert requests.json("DELETE", "hubs?hub=new")[0] == 404
    assert requests.json("POST", "hubs", {"name": "new"})[0] == 201
    assert broker.inspect("west", lambda namespace: namespace.hub("new").partition("0").next_sequence_number) == 0
