"""Every fault through the unmodified SDKs: what a client sees of it, and that no message is lost by it."""

import asyncio
import contextlib
import datetime as dt
import itertools
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.eventhub import exceptions as hub_errors
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    exceptions,
)
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from busway_broker import errors
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.core.backlog import Counts
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import NamespaceFaults, RunningBroker

QUEUE = "orders"
NAMESPACES = [
    NamespaceConfig(
        name="west",
        queues=(
            QueueConfig(name=QUEUE, lock_duration=dt.timedelta(seconds=30)),
            QueueConfig(name="by-session", requires_session=True),
        ),
    ),
    NamespaceConfig(name="hubs", hubs=(HubConfig(name="events"),)),
]


@pytest.fixture
def patient_client(broker: RunningBroker) -> Iterator[ServiceBusClient]:
    string = broker.connection_string("west")
    with ServiceBusClient.from_connection_string(string, retry_total=5, retry_backoff_factor=0.01) as client:
        yield client


@pytest.fixture
def faults(broker: RunningBroker) -> NamespaceFaults:
    return broker.faults("west")


def message(number: int = 0) -> ServiceBusMessage:
    return ServiceBusMessage(f"body {number}", message_id=f"id-{number}")


def send(client: ServiceBusClient, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender(QUEUE) as sender:
        for each in messages:
            sender.send_messages(each)


@contextlib.contextmanager
def received(
    client: ServiceBusClient, **options: Any
) -> Iterator[tuple[ServiceBusReceiver, ServiceBusReceivedMessage]]:
    """Receive one message."""
    with client.get_queue_receiver(QUEUE, **options) as receiver:
        [each] = receiver.receive_messages(max_wait_time=2)
        yield receiver, each


def remaining(broker: RunningBroker) -> list[str]:
    """Return the ids of the messages that the queue holds, in order."""
    stored = broker.inspect("west", lambda west: list(west.store(QUEUE).messages.values()))
    return [each.content.message_id[2:].decode() for each in stored]


def on_sending(**options: Any) -> Fault:
    return Fault(operations=frozenset({Operation.SEND}), **options)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (on_sending(effect=Effect.THROTTLE), exceptions.ServiceBusServerBusyError),
        (on_sending(effect=Effect.DISABLE), exceptions.MessagingEntityDisabledError),
        (on_sending(effect=Effect.FILL), exceptions.ServiceBusQuotaExceededError),
        (
            on_sending(effect=Effect.REFUSE, condition=errors.MESSAGE_SIZE_EXCEEDED),
            exceptions.MessageSizeExceededError,
        ),
        (on_sending(effect=Effect.DROP_CONNECTION), exceptions.ServiceBusConnectionError),
    ],
)
def test_a_refused_or_broken_send_stores_nothing(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults, fault: Fault, error: type[Exception]
) -> None:
    faults.add(fault)
    with client.get_queue_sender(QUEUE) as sender, pytest.raises(error):
        sender.send_messages(message())
    assert remaining(broker) == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (on_sending(effect=Effect.THROTTLE, takes_effect=True), exceptions.ServiceBusServerBusyError),
        (on_sending(effect=Effect.DROP_CONNECTION, takes_effect=True), exceptions.ServiceBusConnectionError),
        (on_sending(effect=Effect.LOSE_ACKNOWLEDGEMENT), exceptions.OperationTimeoutError),
    ],
)
def test_a_send_that_took_effect_and_failed_is_stored(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults, fault: Fault, error: type[Exception]
) -> None:
    faults.add(fault)
    with client.get_queue_sender(QUEUE) as sender, pytest.raises(error):
        sender.send_messages(message(), timeout=1)
    assert remaining(broker) == ["id-0"]


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_client_that_tries_again_sends_every_message_at_least_once(
    broker: RunningBroker, patient_client: ServiceBusClient, faults: NamespaceFaults, takes_effect: bool
) -> None:
    faults.add(on_sending(effect=Effect.DROP_CONNECTION, at=2, times=1, takes_effect=takes_effect))
    faults.add(on_sending(effect=Effect.THROTTLE, at=2, times=2))
    send(patient_client, *map(message, range(4)))
    copies = ["id-1", "id-1"] if takes_effect else ["id-1"]
    assert remaining(broker) == ["id-0", *copies, "id-2", "id-3"]


def test_a_delay_holds_the_answer_back(client: ServiceBusClient, faults: NamespaceFaults) -> None:
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(message(0))
        faults.add(on_sending(effect=Effect.DELAY, delay=1.5, times=1))
        started = time.monotonic()
        sender.send_messages(message(1))
        slow = time.monotonic() - started
        sender.send_messages(message(2))
    assert slow >= 1.5
    assert time.monotonic() - started - slow < 1.2


def test_sending_to_other_entities_still_works(client: ServiceBusClient, faults: NamespaceFaults) -> None:
    faults.add(Fault(effect=Effect.THROTTLE, entity="invoices"))
    send(client, message())


def on_settling(**options: Any) -> Fault:
    return Fault(operations=frozenset({Operation.SETTLE}), **options)


def test_a_refused_completion_raises_and_can_be_repeated(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults
) -> None:
    send(client, message())
    faults.add(on_settling(effect=Effect.THROTTLE, times=1))  # SR19
    with received(client) as (receiver, each):
        with pytest.raises(exceptions.ServiceBusServerBusyError):
            receiver.complete_message(each)
        assert remaining(broker) == ["id-0"]
        receiver.complete_message(each)
    assert remaining(broker) == []


def test_expired_locks_raise_on_settlement_and_the_message_comes_again(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults
) -> None:
    send(client, message())
    faults.add(on_settling(effect=Effect.EXPIRE_LOCKS, times=1))
    with received(client) as (receiver, each):
        with pytest.raises(exceptions.MessageLockLostError):
            receiver.complete_message(each)
        [again] = receiver.receive_messages(max_wait_time=2)
        assert again.delivery_count == 1
        receiver.complete_message(again)
    assert remaining(broker) == []


def test_locks_can_be_expired_at_any_time(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults
) -> None:
    send(client, message())
    with received(client) as (receiver, each):
        faults.expire_locks(QUEUE)
        with pytest.raises(exceptions.MessageLockLostError):
            receiver.renew_message_lock(each)
    assert remaining(broker) == ["id-0"]


def test_connections_can_be_cut_at_any_time_and_opened_again(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults
) -> None:
    send(client, message())
    with received(client) as (receiver, each):
        faults.cut_connections()
        with pytest.raises(exceptions.ServiceBusError):
            receiver.complete_message(each)
    assert remaining(broker) == ["id-0"]
    faults.expire_locks(QUEUE)
    with received(client) as (receiver, each):
        receiver.complete_message(each)
    assert remaining(broker) == []


def test_a_namespace_that_is_down_takes_nobody_and_keeps_everything(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults
) -> None:
    send(client, message())
    faults.go_down()
    faults.go_down()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", broker.port("west")))
    string = broker.connection_string("west")
    with (
        ServiceBusClient.from_connection_string(string, retry_total=0) as late,
        pytest.raises(exceptions.ServiceBusError),
    ):
        late.get_queue_sender(QUEUE).__enter__()
    faults.come_up()
    with received(client) as (receiver, each):
        receiver.complete_message(each)
    assert remaining(broker) == []


def test_session_locks_can_be_ended_at_any_time(client: ServiceBusClient, faults: NamespaceFaults) -> None:
    with client.get_queue_receiver("by-session", session_id="a") as receiver:
        faults.expire_locks("by-session")
        with pytest.raises(exceptions.SessionLockLostError):
            receiver.session.get_state()


def test_a_completion_whose_answer_is_lost_is_settled(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults
) -> None:
    send(client, message())
    faults.add(on_settling(effect=Effect.LOSE_ACKNOWLEDGEMENT))
    # The SDK asks again over the management link, where the lock is gone with the message.
    with received(client, timeout=1) as (receiver, each), pytest.raises(exceptions.MessageLockLostError):
        receiver.complete_message(each)
    assert remaining(broker) == []


@pytest.mark.parametrize(("takes_effect", "left"), [(False, ["id-0"]), (True, [])])
def test_a_connection_that_breaks_while_completing(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults, takes_effect: bool, left: list[str]
) -> None:
    send(client, message())
    faults.add(on_settling(effect=Effect.DROP_CONNECTION, times=1, takes_effect=takes_effect))
    with received(client) as (receiver, each), pytest.raises(exceptions.ServiceBusConnectionError):
        receiver.complete_message(each)
    assert remaining(broker) == left


def on_transfer(**options: Any) -> Fault:
    return Fault(operations=frozenset({Operation.TRANSFER}), **options)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (on_transfer(effect=Effect.THROTTLE, times=1), exceptions.ServiceBusServerBusyError),
        (on_transfer(effect=Effect.DROP_CONNECTION, times=1), exceptions.ServiceBusConnectionError),
    ],
)
def test_a_disconnected_receiver_gets_the_message_on_its_next_link(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults, fault: Fault, error: type[Exception]
) -> None:
    send(client, message())
    faults.add(fault)
    with client.get_queue_receiver(QUEUE) as receiver, pytest.raises(error):
        receiver.receive_messages(max_wait_time=2)
    with received(client) as (receiver, each):
        assert each.delivery_count == 0
        receiver.complete_message(each)
    assert remaining(broker) == []


def test_a_message_lost_with_its_connection_stays_locked_until_the_lock_expires(
    broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults
) -> None:
    send(client, message())
    faults.add(on_transfer(effect=Effect.DROP_CONNECTION, times=1, takes_effect=True))
    with client.get_queue_receiver(QUEUE) as receiver, pytest.raises(exceptions.ServiceBusConnectionError):
        receiver.receive_messages(max_wait_time=2)
    assert broker.counts("west")[QUEUE] == Counts(1, 0, 0, 0, 0)
    faults.expire_locks(QUEUE)
    with received(client) as (_, each):
        assert each.delivery_count == 1


def test_management_requests_can_be_refused_delayed_or_left_unanswered(
    client: ServiceBusClient, faults: NamespaceFaults
) -> None:
    managed = frozenset({Operation.MANAGE})
    with client.get_queue_receiver(QUEUE) as receiver:
        faults.add(Fault(effect=Effect.THROTTLE, operations=managed, times=1, entity=QUEUE))
        with pytest.raises(exceptions.ServiceBusServerBusyError):
            receiver.peek_messages()
        faults.add(Fault(effect=Effect.DELAY, delay=0.4, operations=managed, times=1))
        started = time.monotonic()
        receiver.peek_messages()
        assert time.monotonic() - started >= 0.4
        faults.add(Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, operations=managed, times=1))
        with pytest.raises(exceptions.OperationTimeoutError):
            receiver.peek_messages(timeout=1)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (  # SR10
            {"effect": Effect.REFUSE, "condition": errors.MESSAGE_LOCK_LOST, "request": "renew-lock", "at": 2},
            exceptions.MessageLockLostError,
        ),
        ({"effect": Effect.THROTTLE, "request": "renew-lock", "at": 2}, exceptions.ServiceBusServerBusyError),  # SR19
    ],
)
def test_one_renewal_in_three_is_refused_although_the_lock_is_held(
    broker: RunningBroker,
    client: ServiceBusClient,
    faults: NamespaceFaults,
    options: dict[str, Any],
    error: type[Exception],
) -> None:
    send(client, message())
    faults.add(Fault(operations=frozenset({Operation.MANAGE}), every=3, **options))
    with received(client) as (receiver, each):
        for number in range(1, 7):
            receiver.peek_messages()
            with pytest.raises(error) if number in (2, 5) else contextlib.nullcontext():
                receiver.renew_message_lock(each)
        receiver.complete_message(each)
    assert remaining(broker) == []


def test_scheduling_counts_as_sending(client: ServiceBusClient, faults: NamespaceFaults, broker: RunningBroker) -> None:
    faults.add(Fault(effect=Effect.FILL))
    with client.get_queue_sender(QUEUE) as sender, pytest.raises(exceptions.ServiceBusQuotaExceededError):
        sender.schedule_messages(message(), dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
    assert broker.counts("west")[QUEUE].scheduled == 0


def test_tokens_can_be_refused(client: ServiceBusClient, faults: NamespaceFaults) -> None:
    faults.add(Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.AUTHORIZE})))
    with pytest.raises(exceptions.ServiceBusAuthenticationError), client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(message())


def test_faults_strike_event_hubs_too(broker: RunningBroker) -> None:
    broker.faults("hubs").add(Fault(effect=Effect.THROTTLE, entity="events", operations=frozenset({Operation.SEND})))
    producer = EventHubProducerClient.from_connection_string(
        broker.connection_string("hubs"), eventhub_name="events", retry_total=0
    )
    with producer, pytest.raises(hub_errors.EventHubError, match="server-busy"):
        producer.send_batch([EventData("body")])
    assert broker.inspect("hubs", lambda hubs: hubs.hub("events").partitions[0].next_sequence_number) == 0


def test_reset_clears_faults(broker: RunningBroker, client: ServiceBusClient, faults: NamespaceFaults) -> None:
    faults.add(Fault(effect=Effect.THROTTLE))
    broker.reset()
    assert faults.plain() == []
    send(client, message())


async def _receive_all(string: str, count: int, faults: NamespaceFaults) -> list[str | None]:
    """Receive and complete until *count* ids have been seen, through all faults."""
    seen: list[str | None] = []
    async with AsyncServiceBusClient.from_connection_string(string, retry_total=0) as client:
        for _ in range(100):
            with contextlib.suppress(exceptions.ServiceBusError):
                async with client.get_queue_receiver(QUEUE, timeout=1) as receiver:
                    while batch := await receiver.receive_messages(10, max_wait_time=1):
                        for each in batch:
                            seen.append(each.message_id)
                            await receiver.complete_message(each)
            if len(set(seen)) == count:
                return seen
            faults.expire_locks(QUEUE)  # of messages that a broken connection had received
    return seen


def test_random_faults_lose_no_message(
    broker: RunningBroker, patient_client: ServiceBusClient, faults: NamespaceFaults
) -> None:
    sent = [message(number) for number in range(40)]
    faults.add(on_sending(effect=Effect.THROTTLE, probability=0.1, seed=1))
    faults.add(on_sending(effect=Effect.DROP_CONNECTION, probability=0.05, seed=2, takes_effect=True))
    send(patient_client, *sent)
    faults.clear()
    stored = remaining(broker)
    assert {each for each, _ in itertools.groupby(stored)} == {each.message_id for each in sent}
    faults.add(on_settling(effect=Effect.EXPIRE_LOCKS, probability=0.05, seed=3))
    faults.add(on_settling(effect=Effect.THROTTLE, probability=0.05, seed=4))
    faults.add(on_transfer(effect=Effect.DROP_CONNECTION, probability=0.02, seed=5))
    seen = asyncio.run(_receive_all(broker.connection_string("west"), len(sent), faults))
    dead = broker.inspect("west", lambda west: list(west.store(f"{QUEUE}/$DeadLetterQueue").messages.values()))
    found = set(seen) | {each.content.message_id[2:].decode() for each in dead} | set(remaining(broker))
    assert found == {each.message_id for each in sent}
