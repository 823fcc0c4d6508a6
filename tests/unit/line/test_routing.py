from typing import Any

import pytest

from shared.amqp.values import NULL, TRUE, Value, binary, int_, long, string, timestamp, uint
from shared.errors import MessageRejected
from shared.line.routing import Route, Router, Target
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.rule_properties import _READ, _WRITE, RuleProperties
from shared.rules import SYSTEM_PROPERTIES, parse_action, parse_filter
from tests.fakes import OutputThatAccepts
from tests.messages import ENQUEUED, LOCK_MILLISECONDS, message

OUTPUT = OutputThatAccepts()
EXPRESS, ORDERS = Target(OUTPUT, "east", "express"), Target(OUTPUT, "east", "orders")


def changed(action: str, **options: Any) -> Message:
    it = message(**options)
    assert Router([Route(ORDERS, None, parse_action(action))]).route(it) == (ORDERS,)
    return Message.received(it.encode(), Origin("east", "q"))


def test_the_first_matching_route_gets_the_message() -> None:
    router = Router([Route(EXPRESS, parse_filter("priority > 5")), Route(ORDERS)])
    assert router.route(message(named={"priority": int_(6)})) == (EXPRESS,)
    assert router.route(message(named={"priority": int_(5)})) == (ORDERS,)
    assert router.route(message()) == (ORDERS,), "unknown is not true"


def test_message_without_a_matching_route_is_withheld() -> None:
    assert Router([Route(EXPRESS, parse_filter("priority > 5"))]).route(message()) == ()


def test_the_action_of_a_route_that_does_not_match_is_not_applied() -> None:
    router = Router([Route(EXPRESS, parse_filter("a = 1"), parse_action("SET b = 1")), Route(ORDERS)])
    it = message(named={"a": int_(2)})
    router.route(it)
    assert it.application_property("b") is None


def test_an_action_changes_only_the_properties_that_it_names() -> None:
    wide = Value(0x81, 5)
    it = changed("SET priority = 7; REMOVE old", named={"Old": TRUE, "keep": wide, "Priority": long(1)})
    assert list(it.application_properties()) == [("keep", wide), ("Priority", long(7))]


@pytest.mark.parametrize(
    ("action", "attribute", "value"),
    [
        ("SET sys.TimeToLive = '0:2:0'", "time_to_live", 120_000),
        ("REMOVE sys.TimeToLive", "time_to_live", None),
        ("SET sys.Label = 'new'", "subject", "new"),
        ("SET sys.To = 'new'", "to", "new"),
        ("SET sys.ReplyTo = 'new'", "reply_to", "new"),
        ("SET sys.ContentType = 'text/html'", "content_type", "text/html"),
        ("SET sys.SessionId = 'new'", "session_id", "new"),
        ("REMOVE sys.SessionId", "session_id", None),
        ("SET sys.ReplyToSessionId = 'new'", "reply_to_session_id", "new"),
        ("SET sys.MessageId = 'new'", "message_id", string("new")),
        ("SET sys.CorrelationId = sys.MessageId", "correlation_id", string("m-1")),
        ("SET sys.PartitionKey = 'new'", "partition_key", "new"),
    ],
)
def test_system_properties_are_set(action: str, attribute: str, value: object) -> None:
    assert getattr(changed(action, session_id="s", time_to_live=5000), attribute) == value


def test_a_scheduled_enqueue_time_set_by_an_action_is_sent() -> None:
    it = message()
    Router([Route(ORDERS, None, parse_action("SET sys.ScheduledEnqueueTimeUtc = '2031-01-01T00:00:00Z'"))]).route(it)
    assert it.annotation("x-opt-scheduled-enqueue-time") == timestamp(1_924_992_000_000)


@pytest.mark.parametrize(
    "name",
    sorted({system_property.name for system_property in SYSTEM_PROPERTIES.values() if system_property.is_settable}),
)
def test_every_settable_property_can_be_set_read_and_removed(name: str) -> None:
    value = {"TimeToLive": uint(5), "ScheduledEnqueueTimeUtc": timestamp(5), "ForcePersistence": TRUE}.get(
        name, string("text")
    )
    it = message()
    properties = RuleProperties(it)
    properties.set_system(name, value)
    assert properties.system(name) == value
    it.encode()
    properties.remove_system(name)
    assert properties.system(name) is None
    assert name in _READ
    assert name in _WRITE


@pytest.mark.parametrize(
    "condition",
    [
        "sys.SequenceNumber = 1 AND sys.EnqueuedTimeUtc IS NOT NULL AND sys.TimeToLive IS NOT NULL",
        "sys.MessageId = 'm-1' AND sys.label = 'subject' AND sys.size > 20",
        "user.Colour = 'red' AND colour = 'red' AND COLOUR <> 'blue'",
        "nothing IS NULL AND [null] IS NULL AND NOT EXISTS(nothing) AND EXISTS([null])",
        "colour LIKE 'r%' AND sys.ContentType IS NULL",
    ],
)
def test_conditions_read_broker_and_application_properties(condition: str) -> None:
    it = message(subject=string("subject"), time_to_live=5000, named={"Colour": string("red"), "null": NULL})
    assert parse_filter(condition).matches(RuleProperties(it))


def test_times_are_timestamps() -> None:
    properties = RuleProperties(message())
    assert properties.system("EnqueuedTimeUtc") == timestamp(ENQUEUED)
    assert properties.system("LockedUntilUtc") == timestamp(ENQUEUED + LOCK_MILLISECONDS)


@pytest.mark.parametrize(
    ("action", "named"),
    [
        ("SET sys.ContentType = colour", {"colour": string("röt")}),
        ("SET sys.TimeToLive = colour", {"colour": string("forever")}),
        ("SET sys.TimeToLive = size", {"size": binary(b"x")}),
    ],
)
def test_a_message_to_which_an_action_cannot_be_applied_is_rejected(action: str, named: dict[str, Value]) -> None:
    with pytest.raises(MessageRejected):
        changed(action, named=named)


def test_a_target_is_named_by_site_and_entity() -> None:
    assert str(EXPRESS) == "east/express"
