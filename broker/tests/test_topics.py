"""Topics, subscriptions and rules, as azure-servicebus sees them."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from broker.tests.sdk_calls import SendMessages, TakeEntity

type TakeMessages = Callable[..., list[ServiceBusReceivedMessage]]


@pytest.fixture
def take(client: ServiceBusClient) -> TakeMessages:
    """Take the messages there are from a subscription."""

    def take_messages(topic: str, subscription: str, count: int, **options: Any) -> list[ServiceBusReceivedMessage]:
        with client.get_subscription_receiver(
            topic, subscription, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, **options
        ) as receiver:
            messages = receiver.receive_messages(max(count, 1), max_wait_time=1 if count else 0.2)
            messages += receiver.receive_messages(1, max_wait_time=0.2)
            assert len(messages) == count
            return messages

    return take_messages


def test_every_subscription_gets_what_its_rules_select(
    send: SendMessages, take: TakeMessages, entity: TakeEntity
) -> None:
    topic = entity("topic")
    send(
        topic,
        [
            ServiceBusMessage("1", application_properties={"priority": 9}, subject="order"),
            ServiceBusMessage("2", application_properties={"priority": 1}, subject="other"),
            ServiceBusMessage("3", application_properties={"priority": 7, "replication": 1}),
        ],
    )
    assert [str(message) for message in take(topic, "all", 3)] == ["1", "2", "3"]
    assert [str(message) for message in take(topic, "express", 2)] == ["1", "3"]
    assert [str(message) for message in take(topic, "orders", 1)] == ["1"]
    replicated = take(topic, "replicated", 2)
    assert [str(message) for message in replicated] == ["1", "2"]
    assert replicated[0].application_properties == {b"priority": 9, b"replication": 1, b"RuleName": b"replication"}


def test_rules_with_an_action_make_copies_of_their_own(
    publish: SendMessages, take: TakeMessages, entity: TakeEntity
) -> None:
    topic = entity("topic")
    publish(topic, ServiceBusMessage("body", subject="old", message_id="id"))
    plain, marked = take(topic, "many", 2)
    assert (plain.subject, plain.application_properties) == ("old", None) or plain.application_properties == {}
    assert marked.application_properties == {b"marked": b"yes", b"RuleName": b"marked"}
    assert (marked.subject, marked.message_id) == ("new", "id")


def test_copies_are_numbered_by_the_subscription_and_by_the_topic(
    publish: SendMessages, take: TakeMessages, entity: TakeEntity
) -> None:
    topic = entity("topic")
    publish(topic, [ServiceBusMessage("low", application_properties={"priority": 1})] * 3)
    publish(topic, ServiceBusMessage("high", application_properties={"priority": 9}))
    (message,) = take(topic, "express", 1)
    assert (message.sequence_number, message.enqueued_sequence_number) == (1, 4)


def test_a_subscription_with_sessions_sets_aside_what_has_none(
    publish: SendMessages, take: TakeMessages, entity: TakeEntity
) -> None:
    topic = entity("topic")
    publish(topic, [ServiceBusMessage("with", session_id="a"), ServiceBusMessage("without")])
    assert [str(message) for message in take(topic, "sessions", 1, session_id="a")] == ["with"]
    (dead,) = take(topic, "sessions", 1, sub_queue="deadletter")
    assert dead.dead_letter_reason == "Session ID is null."
    text = "Session enabled entity doesn't allow a message whose session identifier is null."
    assert dead.dead_letter_error_description == text  # SS82


def test_scheduled_messages_reach_the_subscriptions_at_their_time(
    client: ServiceBusClient, take: TakeMessages, entity: TakeEntity
) -> None:
    topic = entity("topic")
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.5)
    with client.get_topic_sender(topic) as sender:
        sender.schedule_messages(ServiceBusMessage("later"), soon)
        numbers = sender.schedule_messages([ServiceBusMessage("never")], soon)
        sender.cancel_scheduled_messages(numbers)
    (message,) = take(topic, "all", 1)
    assert str(message) == "later"


def test_a_topic_is_not_received_from_and_a_subscription_not_sent_to(
    client: ServiceBusClient, send: SendMessages, entity: TakeEntity
) -> None:
    topic = entity("topic")
    with pytest.raises(ServiceBusError, match="could not be found"), client.get_queue_receiver(topic):
        pass
    with pytest.raises(ServiceBusError, match="expected a queue or topic"):
        send(f"{topic}/Subscriptions/all", ServiceBusMessage("body"))
