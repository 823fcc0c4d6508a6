"""Partitioned entities as azure-servicebus sees them."""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator, Sequence

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.partition_hash import partition_of_key
from busway_broker.core.sequence_numbers import PARTITIONS
from busway_broker.thread import RunningBroker
from cli.letters.report import Form, print_list
from shared.clock import ManualClock
from shared.ends.namespace import Namespace
from shared.ends.service_bus.administration import administration_opener
from shared.ends.service_bus.clients import client_of
from shared.ends.service_bus.site import ServiceBusSite
from shared.message.waiting import Waiting
from shared.resend.places import Place
from shared.resend.selection import Selection

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    parts = QueueConfig(name="parts", enable_partitioning=True)
    topic = TopicConfig(name="t", enable_partitioning=True, subscriptions=(SubscriptionConfig(name="all"),))
    with RunningBroker([NamespaceConfig(name="n", queues=(parts,), topics=(topic,))]) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string("n")) as opened:
        yield opened


def messages(count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(str(number), partition_key=f"key-{number % 7}") for number in range(count)]


def send(sender: ServiceBusSender, batch: Sequence[ServiceBusMessage]) -> None:
    for key in {message.partition_key for message in batch}:
        sender.send_messages([message for message in batch if message.partition_key == key])


def partition(message: ServiceBusReceivedMessage) -> int:
    return (message.sequence_number or 0) >> 48


def test_a_peek_has_messages_of_one_partition_and_the_next_one_goes_on(client: ServiceBusClient) -> None:
    with client.get_queue_sender("parts") as sender, client.get_queue_receiver("parts") as receiver:
        send(sender, messages(70))
        found: list[ServiceBusReceivedMessage] = []
        while peeked := receiver.peek_messages(70):
            assert len({partition(message) for message in peeked}) == 1
            found += peeked
        assert [message.sequence_number for message in found] == sorted(m.sequence_number or 0 for m in found)
        assert {str(message) for message in found} == {str(number) for number in range(70)}
        assert len({partition(message) for message in found}) > 1
        (one,) = receiver.peek_messages(1, sequence_number=found[33].sequence_number or 0)
        assert str(one) == str(found[33])


def test_messages_are_deferred_dead_lettered_and_settled_by_their_numbers(client: ServiceBusClient) -> None:
    with client.get_queue_sender("parts") as sender, client.get_queue_receiver("parts") as receiver:
        send(sender, messages(20))
        taken: list[ServiceBusReceivedMessage] = []
        while len(taken) < 20:
            taken += receiver.receive_messages(20, max_wait_time=10)
        first, second, *others = sorted(taken, key=lambda message: -(message.sequence_number or 0))
        receiver.defer_message(first)
        receiver.dead_letter_message(second, reason="test")
        for message in others:
            receiver.complete_message(message)
        (deferred,) = receiver.receive_deferred_messages(first.sequence_number or 0)
        assert str(deferred) == str(first)
        receiver.complete_message(deferred)
        with client.get_queue_receiver("parts", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead_letters:
            (dead,) = dead_letters.receive_messages(1, max_wait_time=10)
            assert partition(dead) == partition(second)
            assert dead.enqueued_sequence_number == second.sequence_number
            dead_letters.complete_message(dead)
        assert receiver.peek_messages(1, sequence_number=0) == []


def test_scheduled_messages_of_a_partitioned_topic_are_cancelled_by_their_numbers(client: ServiceBusClient) -> None:
    due = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    with (
        client.get_topic_sender("t") as sender,
        client.get_subscription_receiver("t", "all") as receiver,
    ):
        numbers = sender.schedule_messages(messages(10), due)
        assert len({number >> 48 for number in numbers}) > 1
        sender.cancel_scheduled_messages(numbers)
        send(sender, messages(10))
        taken: list[ServiceBusReceivedMessage] = []
        while len(taken) < 10:
            taken += receiver.receive_messages(10, max_wait_time=10)
        for message in taken:
            assert partition(message) == (message.enqueued_sequence_number or 0) >> 48
            receiver.complete_message(message)


def test_the_messages_of_all_partitions_are_listed(
    client: ServiceBusClient,
    broker: RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with client.get_queue_sender("parts") as sender:
        send(sender, messages(30))
    monkeypatch.setenv("WEST", broker.connection_string("n"))
    asyncio.run(print_list([Place("west", "west", "WEST", "parts")], Selection(), Form.BODIES, singly=True))
    assert sorted(int(line.split()[0]) for line in capsys.readouterr().out.splitlines()[1:]) == [*range(30)]


def test_the_oldest_message_of_a_partitioned_entity_is_that_of_all_partitions() -> None:
    keys = {partition_of_key(f"{number}", PARTITIONS): f"{number}" for number in range(100)}
    parts = QueueConfig(name="parts", enable_partitioning=True)
    with RunningBroker([NamespaceConfig(name="n", queues=(parts,))], ManualClock(START)) as broker:
        with (
            ServiceBusClient.from_connection_string(broker.connection_string("n")) as client,
            client.get_queue_sender("parts") as sender,
        ):
            for partition_id, count in ((3, 1), (2, 2), (0, 12), (15, 1)):
                sender.send_messages([ServiceBusMessage("x", partition_key=keys[partition_id])] * count)
                broker.advance(60)
        with RunningAdmin(broker) as admin:
            string = broker.connection_string("n")
            settings = {"WEST": string, "WEST__administration": admin.address("n")}
            found = asyncio.run(looks(string, administration_opener("WEST", settings)))
    oldest = round(START.timestamp() * 1000)
    assert found == {
        "counted": Waiting(16, False, oldest),
        "peeked": Waiting(16, False, oldest),
        "peeked in part": Waiting(15, True, oldest),
    }


async def looks(string: str, administration: Callable[[], ServiceBusAdministrationClient] | None) -> dict[str, Waiting]:
    """Return what waits in a queue, by the ways to look at it."""
    sites = {
        "counted": ServiceBusSite("n", lambda: client_of(Namespace("n", string)), administration),
        "peeked": ServiceBusSite("n", lambda: client_of(Namespace("n", string))),
        "peeked in part": ServiceBusSite("n", lambda: client_of(Namespace("n", string)), most_peeked=12),
    }
    try:
        return {name: await site.waiting("parts") for name, site in sites.items()}
    finally:
        await asyncio.gather(*(site.close() for site in sites.values()))
