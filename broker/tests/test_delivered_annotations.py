"""The annotations and the tag of a delivered message are those of Azure's own messages."""

from uuid import UUID

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue

from broker.tests.sdk_calls import Bus, some

TIME, NUMBER, LOCKED = b"x-opt-enqueued-time", b"x-opt-sequence-number", b"x-opt-locked-until"
STATE, ORIGINAL = b"x-opt-message-state", b"x-opt-enqueue-sequence-number"


def annotations(message: ServiceBusReceivedMessage) -> list[object]:
    return list(message.raw_amqp_message.annotations or {})


def of_the_delivery(message: ServiceBusReceivedMessage) -> object:
    return message.raw_amqp_message.delivery_annotations


def published(bus: Bus) -> str:
    queue = bus.entity("plain")
    bus.publish(queue, ServiceBusMessage("x"))
    return queue


def test_a_message_of_a_queue_has_three_and_its_lock_token_and_two_without_a_lock(bus: Bus) -> None:
    with bus.client.get_queue_receiver(published(bus)) as receiver:
        [peeked] = receiver.peek_messages()
        [message] = receiver.receive_messages(max_wait_time=5)
        assert (annotations(message), annotations(peeked)) == ([TIME, NUMBER, LOCKED], [TIME, NUMBER])
        assert isinstance(message.lock_token, UUID)
        assert of_the_delivery(message) == {b"x-opt-lock-token": message.lock_token}
        assert of_the_delivery(peeked) == {}
        assert message.enqueued_sequence_number is None


def test_a_deleted_message_has_no_tag(bus: Bus) -> None:
    [message] = bus.take(published(bus), 1)
    assert (annotations(message), of_the_delivery(message)) == ([TIME, NUMBER], {})
    assert (message._delivery_tag, message.lock_token) == (b"", None)


def test_the_state_is_there_if_it_is_not_active(bus: Bus) -> None:
    with bus.client.get_queue_receiver(published(bus)) as receiver:
        [message] = receiver.receive_messages(max_wait_time=5)
        receiver.defer_message(message)
        [peeked] = receiver.peek_messages(sequence_number=some(message.sequence_number))
        assert annotations(peeked) == [TIME, NUMBER, STATE]
        assert peeked.state == 1
        [deferred] = receiver.receive_deferred_messages([some(message.sequence_number)])
        assert of_the_delivery(deferred) == {b"x-opt-lock-token": deferred.lock_token}
        assert deferred.lock_token != message.lock_token


def test_a_message_that_was_moved_has_its_first_number(bus: Bus) -> None:
    topic, queue = bus.entity("topic"), published(bus)
    bus.publish(topic, ServiceBusMessage("x"))
    with bus.client.get_subscription_receiver(topic, "all") as receiver:
        [copied] = receiver.receive_messages(max_wait_time=5)
        assert annotations(copied) == [TIME, NUMBER, LOCKED, ORIGINAL]
    with bus.client.get_queue_receiver(queue) as receiver:
        receiver.dead_letter_message(receiver.receive_messages(max_wait_time=5)[0], reason="r")
    [dead] = bus.take(queue, 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert (dead.enqueued_sequence_number, annotations(dead)) == (1, [TIME, NUMBER, ORIGINAL])
