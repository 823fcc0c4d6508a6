"""Topics, subscriptions and rules, as azure-servicebus sees them."""

import datetime as dt
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from broker.tests.sdk_calls import Bus


def take(bus: Bus, topic: str, subscription: str, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
    """Take the messages there are from a subscription."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with bus.client.get_subscription_receiver(topic, subscription, receive_mode=mode, **options) as receiver:
        messages = receiver.receive_messages(max(count, 1), max_wait_time=1 if count else 0.2)
        messages += receiver.receive_messages(1, max_wait_time=0.2)
        assert len(messages) == count
        return messages


def test_every_subscription_gets_what_its_rules_select(bus: Bus) -> None:
    topic = bus.entity("topic")
    bus.send(
        topic,
        [
            ServiceBusMessage("1", application_properties={"priority": 9}, subject="order"),
            ServiceBusMessage("2", application_properties={"priority": 1}, subject="other"),
            ServiceBusMessage("3", application_properties={"priority": 7, "replication": 1}),
        ],
    )
    assert [str(message) for message in take(bus, topic, "all", 3)] == ["1", "2", "3"]
    assert [str(message) for message in take(bus, topic, "express", 2)] == ["1", "3"]
    assert [str(message) for message in take(bus, topic, "orders", 1)] == ["1"]
    replicated = take(bus, topic, "replicated", 2)
    assert [str(message) for message in replicated] == ["1", "2"]
    assert replicated[0].application_properties == {b"priority": 9, b"replication": 1, b"RuleName": b"replication"}


def test_rules_with_an_action_make_copies_of_their_own(bus: Bus) -> None:
    topic = bus.entity("topic")
    bus.publish(topic, ServiceBusMessage("body", subject="old", message_id="id"))
    plain, marked = take(bus, topic, "many", 2)
    assert (plain.subject, plain.application_properties) == ("old", None) or plain.application_properties == {}
    assert marked.application_properties == {b"marked": b"yes", b"RuleName": b"marked"}
    assert (marked.subject, marked.message_id) == ("new", "id")


def test_copies_are_numbered_by_the_subscription_and_by_the_topic(bus: Bus) -> None:
    topic = bus.entity("topic")
    bus.publish(topic, [ServiceBusMessage("low", application_properties={"priority": 1})] * 3)
    bus.publish(topic, ServiceBusMessage("high", application_properties={"priority": 9}))
    (message,) = take(bus, topic, "express", 1)
    assert (message.sequence_number, message.enqueued_sequence_number) == (1, 4)


def test_a_subscription_with_sessions_sets_aside_what_has_none(bus: Bus) -> None:
    topic = bus.entity("topic")
    bus.publish(topic, [ServiceBusMessage("with", session_id="a"), ServiceBusMessage("without")])
    assert [str(message) for message in take(bus, topic, "sessions", 1, session_id="a")] == ["with"]
    (dead,) = take(bus, topic, "sessions", 1, sub_queue="deadletter")
    assert dead.dead_letter_reason == "Session ID is null."
    text = "Session enabled entity doesn't allow a message whose session identifier is null."
    assert dead.dead_letter_error_description == text  # SS82


def test_scheduled_messages_reach_the_subscriptions_at_their_time(bus: Bus) -> None:
    topic = bus.entity("topic")
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.5)
    with bus.client.get_topic_sender(topic) as sender:
        sender.schedule_messages(ServiceBusMessage("later"), soon)
        numbers = sender.schedule_messages([ServiceBusMessage("never")], soon)
        sender.cancel_scheduled_messages(numbers)
    (message,) = take(bus, topic, "all", 1)
    assert str(message) == "later"


def test_a_topic_is_not_received_from_and_a_subscription_not_sent_to(bus: Bus) -> None:
    topic = bus.entity("topic")
    with pytest.raises(ServiceBusError, match="could not be found"), bus.client.get_queue_receiver(topic):
        pass
    with pytest.raises(ServiceBusError, match="expected a queue or topic"):
        bus.send(f"{topic}/Subscriptions/all", ServiceBusMessage("body"))
