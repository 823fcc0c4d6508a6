"""Counts of the administration, which are some seconds old, and the truth beside them."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker
from shared.clock import ManualClock

pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")

CONFIG = NamespaceConfig(
    name="west",
    queues=(QueueConfig(name="orders", lock_duration=dt.timedelta(minutes=5)),),
    topics=(TopicConfig(name="events", subscriptions=(SubscriptionConfig(name="all"),)),),
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(dt.datetime.now(dt.UTC))


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[RunningBroker]:
    with RunningBroker([CONFIG], clock) as broker:
        yield broker


@pytest.fixture
def administration(broker: RunningBroker, tmp_path: Path) -> Iterator[ServiceBusAdministrationClient]:
    with (
        RunningAdmin(broker, tmp_path) as admin,
        ServiceBusAdministrationClient.from_connection_string(
            admin.connection_string("west"), connection_verify=str(admin.authority), retry_total=0
        ) as client,
    ):
        yield client


def test_counts_are_as_they_were_two_seconds_ago(
    broker: RunningBroker, client: ServiceBusClient, administration: ServiceBusAdministrationClient
) -> None:
    def counts() -> tuple[int | None, ...]:
        queue = administration.get_queue_runtime_properties("orders")
        (found,) = administration.list_subscriptions_runtime_properties("events")
        return queue.active_message_count, queue.dead_letter_message_count, found.active_message_count

    for topic in ("orders", "events"):
        with client.get_queue_sender(topic) as sender:
            sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
    assert counts() == (0, 0, 0)
    broker.advance(1.9)
    assert counts() == (0, 0, 0)
    broker.advance(0.2)
    assert counts() == (2, 0, 2)
    with client.get_queue_receiver("orders") as receiver:
        first, second = receiver.receive_messages(2, max_wait_time=5)
        receiver.dead_letter_message(first)
        receiver.complete_message(second)
    assert counts() == (2, 0, 2)
    true = broker.counts("west")["orders"]
    assert (true.active, true.dead_lettered) == (0, 1)
    broker.advance(2.1)
    assert counts() == (0, 1, 2)


def test_a_second_cancellation_makes_the_count_of_scheduled_messages_negative(
    broker: RunningBroker, clock: ManualClock, client: ServiceBusClient, administration: ServiceBusAdministrationClient
) -> None:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("now"))
        (number,) = sender.schedule_messages(ServiceBusMessage("later"), clock.now() + dt.timedelta(hours=1))
        sender.cancel_scheduled_messages(number)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(number)
    broker.advance(2.1)
    found = administration.get_queue_runtime_properties("orders")
    assert (found.active_message_count, found.scheduled_message_count, found.total_message_count) == (1, -1, 1)
    assert broker.counts("west")["orders"].scheduled == 0
