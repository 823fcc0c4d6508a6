"""The data-plane clients while entities are created, changed and deleted, and the sizes of entities."""

import contextlib
import datetime as dt
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusQuotaExceededError,
)

from busway_broker.config import EntityStatus, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.administration import Administration
from busway_broker.core.usage import Use
from busway_broker.thread import RunningBroker
from shared.clock import ManualClock

CONFIG = NamespaceConfig(
    name="west",
    queues=(
        QueueConfig(name="orders"),
        QueueConfig(name="sessions", requires_session=True),
        QueueConfig(name="small", max_size=1, max_message_size=2 * 1024 * 1024),
        QueueConfig(name="source", forward_to="orders"),
    ),
    topics=(TopicConfig(name="events", subscriptions=(SubscriptionConfig(name="all"),)),),
)


NAMESPACES = [CONFIG]

type Administer = Callable[[Callable[[Administration], object]], object]
type Update = Callable[[QueueConfig], None]


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ServiceBusClient]:
    # The sender of a detached link raises without a reason; the retry that opens the link again gets it.
    with ServiceBusClient.from_connection_string(
        broker.connection_string("west"), retry_total=1, retry_backoff_factor=0.01
    ) as client:
        yield client


@pytest.fixture
def administer(broker: RunningBroker) -> Administer:
    return lambda work: broker.inspect("west", lambda west: work(Administration(west)))


@pytest.fixture
def update(broker: RunningBroker) -> Update:
    def update(config: QueueConfig) -> None:
        broker.inspect("west", lambda west: Administration(west).update(west.queue(config.name), config))

    return update


def test_a_new_queue_exists_at_once_until_it_is_deleted(client: ServiceBusClient, administer: Administer) -> None:
    administer(lambda admin: admin.create_queue(QueueConfig(name="New")))
    with client.get_queue_sender("new") as sender, client.get_queue_receiver("new") as receiver:
        sender.send_messages(ServiceBusMessage("body"))
        (message,) = receiver.receive_messages(max_wait_time=2)
        receiver.complete_message(message)
        administer(lambda admin: admin.delete("NEW"))
        with pytest.raises(MessagingEntityNotFoundError):
            sender.send_messages(ServiceBusMessage("body"))
        with pytest.raises(MessagingEntityNotFoundError):
            receiver.receive_messages(max_wait_time=2)
    with pytest.raises(MessagingEntityNotFoundError), client.get_queue_sender("new") as sender:
        sender.send_messages(ServiceBusMessage("body"))


def test_deleting_a_topic_deletes_its_subscriptions(
    client: ServiceBusClient, broker: RunningBroker, administer: Administer
) -> None:
    with client.get_subscription_receiver("events", "all") as receiver:
        assert receiver.receive_messages(max_wait_time=0.1) == []
        assert broker.inspect("west", lambda west: west.links.count("events/subscriptions/all", Use.RECEIVE)) == 1
        administer(lambda admin: admin.delete("events"))
        with pytest.raises(MessagingEntityNotFoundError):
            receiver.receive_messages(max_wait_time=2)
    assert broker.inspect("west", lambda west: west.links.count("events/subscriptions/all", Use.RECEIVE)) == 0


def test_a_receiver_waiting_for_messages_ends_when_its_queue_is_deleted(
    client: ServiceBusClient, administer: Administer
) -> None:
    with client.get_queue_receiver("orders") as receiver:
        assert receiver.receive_messages(max_wait_time=0.1) == []
        timer = threading.Timer(0.3, administer, [lambda admin: admin.delete("orders")])
        timer.start()
        with pytest.raises(MessagingEntityNotFoundError):
            receiver.receive_messages(max_wait_time=10)
        timer.join()


def test_a_receiver_waiting_for_a_session_ends_when_its_queue_is_deleted(
    client: ServiceBusClient, administer: Administer
) -> None:
    timer = threading.Timer(0.3, administer, [lambda admin: admin.delete("sessions")])
    timer.start()
    with (
        pytest.raises(MessagingEntityNotFoundError),
        client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=10) as receiver,
    ):
        receiver.receive_messages()
    timer.join()


@pytest.mark.parametrize(
    ("status", "can_send", "can_receive"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
def test_a_disabled_queue_ends_links_and_refuses_new_ones(
    client: ServiceBusClient, update: Update, status: EntityStatus, can_send: bool, can_receive: bool
) -> None:
    def expected(can: bool) -> Any:
        return contextlib.nullcontext() if can else pytest.raises(MessagingEntityDisabledError)

    message = ServiceBusMessage("body")
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages(message)
        assert receiver.receive_messages(max_wait_time=2)
        update(QueueConfig(name="orders", status=status))
        with expected(can_send):
            sender.send_messages(message)
        with expected(can_receive):
            receiver.receive_messages(max_wait_time=0.2)
    with expected(can_send), client.get_queue_sender("orders") as sender:
        sender.send_messages(message)
    with expected(can_receive), client.get_queue_receiver("orders") as receiver:
        receiver.receive_messages(max_wait_time=0.2)
    with expected(can_receive), client.get_queue_receiver("orders", sub_queue="deadletter") as receiver:
        receiver.receive_messages(max_wait_time=0.2)
    update(QueueConfig(name="orders", status=EntityStatus.ACTIVE))
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(message)


def test_scheduling_on_a_disabled_queue_is_refused(
    client: ServiceBusClient, update: Update, broker: RunningBroker
) -> None:
    update(QueueConfig(name="orders", status=EntityStatus.SEND_DISABLED))
    with pytest.raises(MessagingEntityDisabledError), client.get_queue_sender("orders") as sender:
        sender.schedule_messages(ServiceBusMessage("body"), broker.inspect("west", lambda west: west.clock.now()))


def test_a_full_queue_refuses_until_there_is_room(client: ServiceBusClient, broker: RunningBroker) -> None:
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_sender("small") as sender, client.get_queue_receiver("small", receive_mode=mode) as receiver:
        sender.send_messages([ServiceBusMessage(bytes(100 * 1024)) for _ in range(6)])
        sender.send_messages([ServiceBusMessage(bytes(100 * 1024)) for _ in range(6)])
        assert broker.inspect("west", lambda west: west.queue("small").size) > 1024 * 1024
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(ServiceBusMessage("one more"))
        received = 0
        while received < 12:
            received += len(receiver.receive_messages(12, max_wait_time=2))
        assert broker.inspect("west", lambda west: west.queue("small").size) == 0
        sender.send_messages(ServiceBusMessage("one more"))


def test_messages_count_against_the_size_wherever_they_are(client: ServiceBusClient, broker: RunningBroker) -> None:
    def size() -> int:
        return broker.inspect("west", lambda west: west.queue("orders").size)

    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages([ServiceBusMessage(bytes(1000)), ServiceBusMessage(bytes(1000))])
        (number,) = sender.schedule_messages(
            ServiceBusMessage(bytes(1000)), broker.inspect("west", lambda west: west.clock.now()).replace(year=2999)
        )
        full = size()
        assert full > 3000
        first, second = receiver.receive_messages(2, max_wait_time=2)
        receiver.dead_letter_message(first, reason="r")
        assert size() > full
        receiver.complete_message(second)
        sender.cancel_scheduled_messages(number)
        with client.get_queue_receiver("orders", sub_queue="deadletter") as dead:
            dead.complete_message(*dead.receive_messages(max_wait_time=2))
    assert size() == 0


def test_a_shorter_lock_duration_holds_for_the_next_message(client: ServiceBusClient, update: Update) -> None:
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages([ServiceBusMessage("long"), ServiceBusMessage("short")])
        (long,) = receiver.receive_messages(1, max_wait_time=2)
        update(QueueConfig(name="orders", lock_duration=dt.timedelta(seconds=1)))
        (short,) = receiver.receive_messages(1, max_wait_time=2)
        assert short.locked_until_utc is not None
        assert long.locked_until_utc is not None
        assert short.locked_until_utc < long.locked_until_utc
        (again,) = receiver.receive_messages(1, max_wait_time=5)
        assert (str(again), again.delivery_count) == ("short", 1)
        receiver.complete_message(long)


def test_links_are_forgotten_when_they_close(client: ServiceBusClient, broker: RunningBroker) -> None:
    def attached() -> set[Use]:
        return broker.inspect(
            "west", lambda west: {use for links in west.links._links.values() for use in links.values()}
        )

    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages(ServiceBusMessage("body"))
        receiver.peek_messages()
        assert attached() == set(Use)
    assert attached() == set()
    assert broker.inspect("west", lambda west: west.queue("orders").times.accessed_at) is not None


def test_an_idle_queue_deletes_itself() -> None:
    clock = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    config = QueueConfig(name="idle", auto_delete_on_idle=dt.timedelta(minutes=5))
    with RunningBroker([NamespaceConfig(name="west", queues=(config,))], clock) as broker:
        broker.advance(299)
        text = broker.connection_string("west")
        with ServiceBusClient.from_connection_string(text) as client, client.get_queue_sender("idle") as sender:
            sender.send_messages(ServiceBusMessage("x"))
            broker.advance(1000)
        broker.advance(299)
        assert broker.inspect("west", lambda west: "idle" in west.queues)
        broker.advance(2)
        assert broker.inspect("west", lambda west: "idle" not in west.queues)


def test_a_queue_with_sessions_deletes_itself_while_a_receiver_waits_for_one() -> None:
    """SS25."""
    clock = ManualClock(dt.datetime.now(dt.UTC))
    config = QueueConfig(name="idle", requires_session=True, auto_delete_on_idle=dt.timedelta(minutes=5))
    with RunningBroker([NamespaceConfig(name="west", queues=(config,))], clock) as broker:
        text = broker.connection_string("west")
        with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
            broker.advance(200)
            waiting = client.get_queue_receiver("idle", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)
            with pytest.raises(OperationTimeoutError), waiting:
                pass
            broker.advance(101)
            assert broker.inspect("west", lambda west: "idle" not in west.queues)


def test_what_a_queue_holds_is_forwarded_when_forwarding_is_set(
    client: ServiceBusClient, broker: RunningBroker, administer: Administer, update: Update
) -> None:
    administer(lambda admin: admin.create_queue(QueueConfig(name="late")))
    with client.get_queue_sender("late") as sender, client.get_queue_receiver("late") as receiver:
        sender.send_messages([ServiceBusMessage(body) for body in ("locked", "first", "second")])
        (locked,) = receiver.receive_messages(1, max_wait_time=2)
        update(QueueConfig(name="late", forward_to="orders"))
        assert broker.counts("west")["orders"].active == 2
        receiver.abandon_message(locked)
    with client.get_queue_receiver("orders") as receiver:
        assert [str(message) for message in receiver.peek_messages(5)] == ["first", "second", "locked"]
    assert broker.counts("west")["late"].active == 0
