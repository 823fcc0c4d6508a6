"""Queues, as azure-servicebus sees them."""

import asyncio
import datetime as dt
import time
import uuid

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from broker.tests.sdk_calls import Bus, some


def test_messages_arrive_in_order_with_their_properties(bus: Bus) -> None:
    queue = bus.entity("plain")
    bus.send(
        queue,
        [
            ServiceBusMessage(
                f"body {number}".encode(),
                message_id=f"id-{number}",
                subject="subject",
                content_type="text/plain",
                correlation_id="correlation",
                to="to",
                reply_to="reply-to",
                time_to_live=dt.timedelta(minutes=5),
                application_properties={"text": "t", "number": number, "yes": True, "half": 0.5},
            )
            for number in range(10)
        ],
    )
    with bus.client.get_queue_receiver(queue) as receiver:
        messages = receiver.receive_messages(10, max_wait_time=2)
        assert [b"".join(message.body) for message in messages] == [f"body {n}".encode() for n in range(10)]
        assert [message.sequence_number for message in messages] == list(range(1, 11))
        first = messages[0]
        assert (first.message_id, first.subject, first.content_type) == ("id-0", "subject", "text/plain")
        assert (first.correlation_id, first.to, first.reply_to) == ("correlation", "to", "reply-to")
        assert first.time_to_live == dt.timedelta(minutes=5)
        assert first.application_properties == {b"text": b"t", b"number": 0, b"yes": True, b"half": 0.5}
        assert first.delivery_count == 0
        assert isinstance(first.lock_token, uuid.UUID)
        age = dt.datetime.now(dt.UTC) - some(first.enqueued_time_utc)
        assert abs(age) < dt.timedelta(seconds=10)
        for message in messages:
            receiver.complete_message(message)
        assert receiver.receive_messages(1, max_wait_time=0.3) == []


def test_a_batch_object_arrives_message_by_message(bus: Bus) -> None:
    queue = bus.entity("plain")
    with bus.client.get_queue_sender(queue) as sender:
        batch = sender.create_message_batch()
        for number in range(200):
            batch.add_message(ServiceBusMessage("x" * 1000, message_id=str(number)))
        sender.send_messages(batch)
    assert [message.message_id for message in bus.take(queue, 200)] == [str(number) for number in range(200)]


def test_an_abandoned_message_comes_back_in_its_place_with_a_count(bus: Bus) -> None:
    queue = bus.entity("plain")
    bus.publish(queue, [ServiceBusMessage(str(number)) for number in range(3)])
    with bus.client.get_queue_receiver(queue) as receiver:
        messages = receiver.receive_messages(3, max_wait_time=2)
        for message in reversed(messages):
            receiver.abandon_message(message)
        again = receiver.receive_messages(3, max_wait_time=2)
        assert [(str(message), message.delivery_count) for message in again] == [("0", 1), ("1", 1), ("2", 1)]


def test_a_message_abandoned_too_often_is_dead_lettered(bus: Bus) -> None:
    queue = bus.entity("short-lock")
    bus.publish(queue, ServiceBusMessage("body", application_properties={"kept": 1}))
    with bus.client.get_queue_receiver(queue) as receiver:
        for _ in range(2):
            (message,) = receiver.receive_messages(1, max_wait_time=2)
            receiver.abandon_message(message)
        assert receiver.receive_messages(1, max_wait_time=0.3) == []
    (dead,) = bus.take(queue, 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert "2 delivery attempts" in some(dead.dead_letter_error_description)
    assert some(dead.application_properties)[b"kept"] == 1


def test_an_expired_lock_is_lost_and_the_message_comes_back(bus: Bus) -> None:
    queue = bus.entity("short-lock")
    bus.publish(queue, [ServiceBusMessage("first"), ServiceBusMessage("second"), ServiceBusMessage("third")])
    with bus.client.get_queue_receiver(queue) as receiver:
        first, second, renewed = receiver.receive_messages(3, max_wait_time=2)
        time.sleep(0.7)
        receiver.renew_message_lock(renewed)
        # The SDK compares this annotation with its clock before it asks the broker.
        some(second.raw_amqp_message.annotations)[b"x-opt-locked-until"] += 60_000
        time.sleep(0.4)
        for message, text in ((first, "has expired"), (second, "lock supplied is invalid")):
            with pytest.raises(MessageLockLostError, match=text):
                receiver.complete_message(message)
        receiver.complete_message(renewed)
        again = receiver.receive_messages(3, max_wait_time=2)
        assert [(str(each), each.delivery_count) for each in again] == [("first", 1), ("second", 1)]


def test_dead_lettering_keeps_the_reason(bus: Bus) -> None:
    queue = bus.entity("plain")
    bus.publish(queue, ServiceBusMessage("body", message_id="dead"))
    with bus.client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=2)
        receiver.dead_letter_message(message, reason="reason", error_description="description")
    with bus.client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = receiver.receive_messages(1, max_wait_time=2)
        assert (dead.message_id, dead.dead_letter_reason) == ("dead", "reason")
        assert dead.dead_letter_error_description == "description"
        assert some(dead.application_properties)[b"DeadLetterReason"] == b"reason"
        receiver.complete_message(dead)


def test_deferred_messages_wait_for_their_number(bus: Bus) -> None:
    queue = bus.entity("plain")
    bus.publish(queue, [ServiceBusMessage("one"), ServiceBusMessage("two")])
    with bus.client.get_queue_receiver(queue) as receiver:
        first, second = receiver.receive_messages(2, max_wait_time=2)
        receiver.defer_message(first)
        receiver.complete_message(second)
        assert receiver.receive_messages(1, max_wait_time=0.3) == []
        (deferred,) = receiver.receive_deferred_messages(first.sequence_number or 0)
        assert str(deferred) == "one"
        receiver.complete_message(deferred)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages([some(first.sequence_number)])


def test_peeking_sees_messages_in_every_state(bus: Bus) -> None:
    queue = bus.entity("plain")
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    bus.publish(queue, [ServiceBusMessage(text) for text in ("locked", "deferred", "active")])
    with bus.client.get_queue_sender(queue) as sender:
        sender.schedule_messages(ServiceBusMessage("scheduled"), later)
    with bus.client.get_queue_receiver(queue) as receiver:
        _, deferred = receiver.receive_messages(2, max_wait_time=2)
        receiver.defer_message(deferred)
        peeked = receiver.peek_messages(10, sequence_number=1)
        assert [(str(message), message.state.name) for message in peeked] == [
            ("locked", "ACTIVE"),
            ("deferred", "DEFERRED"),
            ("active", "ACTIVE"),
            ("scheduled", "SCHEDULED"),
        ]
        assert [str(message) for message in receiver.peek_messages(1, sequence_number=3)] == ["active"]


def test_scheduled_messages_come_at_their_time_and_can_be_cancelled(bus: Bus) -> None:
    queue = bus.entity("plain")
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=0.7)
    with bus.client.get_queue_sender(queue) as sender:
        numbers = sender.schedule_messages([ServiceBusMessage("cancelled"), ServiceBusMessage("kept")], soon)
        sender.cancel_scheduled_messages(numbers[0])
        with pytest.raises(ServiceBusError):
            sender.cancel_scheduled_messages(numbers[0])
    messages = bus.take(queue, 1)
    assert [str(message) for message in messages] == ["kept"]
    assert some(messages[0].enqueued_time_utc) >= soon - dt.timedelta(milliseconds=1)
    assert some(messages[0].sequence_number) > numbers[1]


def test_messages_expire_to_the_dead_letter_queue(bus: Bus) -> None:
    queue = bus.entity("expiring")
    bus.publish(queue, ServiceBusMessage("body", time_to_live=dt.timedelta(seconds=1)))
    (dead,) = bus.take(queue, 1, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    assert dead.dead_letter_reason == "TTLExpiredException"
    assert bus.take(queue, 0) == []


def test_the_entity_limits_the_time_to_live_unseen_and_drops_what_has_expired(bus: Bus) -> None:
    queue = bus.entity("dropping")
    bus.publish(queue, ServiceBusMessage("body", time_to_live=dt.timedelta(hours=1)))
    with bus.client.get_queue_receiver(queue) as receiver:
        (peeked,) = receiver.peek_messages(1, sequence_number=1)
        assert peeked.time_to_live == dt.timedelta(hours=1)
        time.sleep(1.2)
        assert receiver.peek_messages(1, sequence_number=1) == []
        assert bus.broker.inspect("west", lambda west: len(west.queue(queue).backlog.dead_letters.messages)) == 0


def test_receive_and_delete_leaves_nothing(bus: Bus) -> None:
    queue = bus.entity("plain")
    bus.publish(queue, [ServiceBusMessage(str(number)) for number in range(50)])
    assert [str(message) for message in bus.take(queue, 50)] == [str(number) for number in range(50)]
    assert bus.take(queue, 1) == []


def test_prefetched_messages_are_released_uncounted_when_the_receiver_closes(bus: Bus) -> None:
    queue = bus.entity("plain")
    bus.publish(queue, [ServiceBusMessage(str(number)) for number in range(20)])
    with bus.client.get_queue_receiver(queue, prefetch_count=10) as receiver:
        (first,) = receiver.receive_messages(1, max_wait_time=2)
        receiver.complete_message(first)
    rest = bus.receive(queue, 19)
    assert [(str(message), message.delivery_count) for message in rest] == [(str(n), 0) for n in range(1, 20)]


def test_a_message_of_many_frames_goes_both_ways(bus: Bus) -> None:
    body = bytes(range(256)) * 4000
    with bus.client.get_queue_sender("premium") as sender:
        sender.send_messages(ServiceBusMessage(body))
    (message,) = bus.take("premium", 1)
    assert b"".join(message.body) == body


def test_a_message_over_the_limit_ends_the_link(bus: Bus) -> None:
    queue = bus.entity("plain")
    with bus.client.get_queue_sender(queue) as sender:
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage(b"x" * 300_000))
        with pytest.raises(ServiceBusConnectionError):  # the SDK finds that the link is gone
            sender.send_messages(ServiceBusMessage("lost"))
        sender.send_messages(ServiceBusMessage("fits"))
    assert [str(message) for message in bus.take(queue, 1)] == ["fits"]


def test_all_body_types_keep_their_type(bus: Bus) -> None:
    queue = bus.entity("plain")
    with bus.client.get_queue_sender(queue) as sender:
        sender.send_messages(AmqpAnnotatedMessage(value_body={"a": 1}))
        sender.send_messages(AmqpAnnotatedMessage(sequence_body=[[1, "two"], [3]]))
    value, sequence = bus.take(queue, 2)
    assert value.raw_amqp_message.body == {b"a": 1}
    assert list(sequence.raw_amqp_message.body) == [[1, b"two"], [3]]


def test_an_entity_that_does_not_exist_is_reported(bus: Bus) -> None:
    with pytest.raises(MessagingEntityNotFoundError):
        bus.receive("nowhere", 1)
    with pytest.raises(MessagingEntityNotFoundError):
        bus.send("nowhere", ServiceBusMessage("body"))


def test_duplicates_are_accepted_and_dropped(bus: Bus) -> None:
    queue = bus.entity("unique")
    bus.send(queue, [ServiceBusMessage("1", message_id="a"), ServiceBusMessage("2", message_id="a")])
    bus.send(queue, [ServiceBusMessage("3", message_id="a"), ServiceBusMessage("4", message_id="b")])
    assert [str(message) for message in bus.take(queue, 2)] == ["1", "4"]


def test_messages_are_forwarded_and_so_are_dead_letters(bus: Bus) -> None:
    bus.publish("first", ServiceBusMessage("body"))
    with bus.client.get_queue_receiver("third") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=2)
        receiver.dead_letter_message(message, reason="why")
    (dead,) = bus.take("morgue", 1)
    assert (dead.dead_letter_reason, dead.dead_letter_source) == ("why", "third")


def test_namespaces_are_separate(bus: Bus) -> None:
    queue = bus.entity("plain")
    bus.send(queue, ServiceBusMessage("west"))
    with ServiceBusClient.from_connection_string(bus.broker.connection_string("east")) as east:
        with east.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("east"))
        assert [str(message) for message in east.get_queue_receiver(queue).receive_messages(2, max_wait_time=1)] == [
            "east"
        ]


def test_the_asynchronous_client_behaves_the_same(bus: Bus) -> None:
    queue = bus.entity("plain")

    async def run() -> None:
        async with AsyncClient.from_connection_string(bus.broker.connection_string("west")) as client:
            async with client.get_queue_sender(queue) as sender:
                await sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
                await asyncio.gather(*(sender.send_messages(ServiceBusMessage("more")) for _ in range(10)))
            async with client.get_queue_receiver(queue) as receiver:
                messages = await receiver.receive_messages(30, max_wait_time=2)
                first, second, third, fourth, *rest = messages
                await receiver.abandon_message(first)
                await receiver.defer_message(second)
                await receiver.dead_letter_message(third, reason="why")
                await receiver.renew_message_lock(fourth)
                start = time.monotonic()
                await asyncio.gather(*(receiver.complete_message(message) for message in [fourth, *rest]))
                # A disposition for a range of deliveries would leave all but one of the waiters waiting.
                assert time.monotonic() - start < 5
                (again,) = await receiver.receive_messages(1, max_wait_time=2)
                assert (str(again), again.delivery_count) == ("0", 1)
                (deferred,) = await receiver.receive_deferred_messages(second.sequence_number or 0)
                await receiver.complete_message(deferred)
            async with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
                (dead,) = await receiver.receive_messages(1, max_wait_time=2)
                assert dead.dead_letter_reason == "why"

    asyncio.run(run())
