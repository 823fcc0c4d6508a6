"""The annotations and the tag of a delivered message are those of Azure's own messages."""

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode

from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker

TIME, NUMBER, LOCKED = b"x-opt-enqueued-time", b"x-opt-sequence-number", b"x-opt-locked-until"
STATE, ORIGINAL = b"x-opt-message-state", b"x-opt-enqueue-sequence-number"
DESTRUCTIVE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


@pytest.fixture(scope="module")
def client() -> Iterator[ServiceBusClient]:
    names = ("locked", "deleted", "deferred", "buried")
    topic = TopicConfig(name="t", subscriptions=(SubscriptionConfig(name="s"),))
    config = NamespaceConfig(name="n", queues=tuple(QueueConfig(name=name) for name in names), topics=(topic,))
    with (
        RunningBroker([config]) as broker,
        ServiceBusClient.from_connection_string(broker.connection_string("n")) as client,
    ):
        yield client


def send(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x"))


def annotations(message: ServiceBusReceivedMessage) -> list[object]:
    return list(message.raw_amqp_message.annotations or {})


def test_a_message_of_a_queue_has_three_and_two_without_a_lock(client: ServiceBusClient) -> None:
    send(client, "locked")
    with client.get_queue_receiver("locked") as receiver:
        [peeked] = receiver.peek_messages()
        [message] = receiver.receive_messages(max_wait_time=5)
        assert annotations(message) == [TIME, NUMBER, LOCKED]
        assert annotations(peeked) == [TIME, NUMBER]
        assert message.enqueued_sequence_number is None


def test_a_deleted_message_has_no_tag(client: ServiceBusClient) -> None:
    send(client, "deleted")
    with client.get_queue_receiver("deleted", receive_mode=DESTRUCTIVE) as receiver:
        [message] = receiver.receive_messages(max_wait_time=5)
        assert annotations(message) == [TIME, NUMBER]
        assert (message._delivery_tag, message.lock_token) == (b"", None)


def test_the_state_is_there_if_it_is_not_active(client: ServiceBusClient) -> None:
    send(client, "deferred")
    with client.get_queue_receiver("deferred") as receiver:
        [message] = receiver.receive_messages(max_wait_time=5)
        receiver.defer_message(message)
        [peeked] = receiver.peek_messages(sequence_number=message.sequence_number or 0)
    assert annotations(peeked) == [TIME, NUMBER, STATE]
    assert peeked.state == 1


def test_a_message_that_was_moved_has_its_first_number(client: ServiceBusClient) -> None:
    with client.get_topic_sender("t") as sender, client.get_subscription_receiver("t", "s") as receiver:
        sender.send_messages(ServiceBusMessage("x"))
        [copied] = receiver.receive_messages(max_wait_time=5)
        assert annotations(copied) == [TIME, NUMBER, LOCKED, ORIGINAL]
    send(client, "buried")
    with client.get_queue_receiver("buried") as receiver:
        receiver.dead_letter_message(receiver.receive_messages(max_wait_time=5)[0], reason="r")
    with client.get_queue_receiver("buried", sub_queue="deadletter", receive_mode=DESTRUCTIVE) as receiver:
        [dead] = receiver.receive_messages(max_wait_time=5)
        assert (dead.enqueued_sequence_number, annotations(dead)) == (1, [TIME, NUMBER, ORIGINAL])
