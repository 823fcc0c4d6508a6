"""Retention of events by time and by size, and who may read a partition when."""

import datetime as dt
from collections.abc import Callable, Iterator

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError

from local.broker import errors
from local.broker.config import HubConfig, NamespaceConfig
from local.broker.core.hub import MAX_READERS, Hub, Partition
from local.broker.errors import Refusal
from local.broker.thread import RunningBroker
from shared.clock import ManualClock

type OpenProducer = Callable[[str], EventHubProducerClient]

HOUR = dt.timedelta(hours=1)
HUBS = (
    HubConfig(name="by-time", message_retention=HOUR),
    HubConfig(name="by-size", retention_size=10_000),
)


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    clock = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    with RunningBroker([NamespaceConfig(name="hubs", hubs=HUBS)], clock) as running:
        yield running


@pytest.fixture
def producer(broker: RunningBroker) -> OpenProducer:
    def open_producer(hub: str) -> EventHubProducerClient:
        return EventHubProducerClient.from_connection_string(broker.connection_string("hubs"), eventhub_name=hub)

    return open_producer


def bounds(producer: EventHubProducerClient) -> tuple[int, int, bool]:
    properties = producer.get_partition_properties("0")
    return properties["beginning_sequence_number"], properties["last_enqueued_sequence_number"], properties["is_empty"]


def test_events_are_kept_for_as_long_as_the_hub_says(broker: RunningBroker, producer: OpenProducer) -> None:
    with producer("by-time") as client:
        client.send_batch([EventData("old")])
        broker.advance(1800)
        client.send_batch([EventData("young")])
        assert bounds(client) == (0, 1, False)
        broker.advance(1801)
        assert bounds(client) == (1, 1, False)
        broker.advance(1801)
        assert bounds(client) == (2, 1, True)


def test_events_are_kept_up_to_the_size_that_the_hub_says(producer: OpenProducer) -> None:
    with producer("by-size") as client:
        for _ in range(30):
            client.send_batch([EventData(bytes(1000))])
        first, last, _ = bounds(client)
        assert last == 29
        assert 8 <= last - first + 1 <= 10
        client.send_batch([EventData(bytes(50_000))])
        assert bounds(client) == (30, 30, False)


class Reader:
    """A reader that notes why it was cut off."""

    def __init__(self, epoch: int | None = None) -> None:
        self.epoch = epoch
        self.reason: Refusal | None = None

    def wake(self) -> None:
        pass

    def stolen(self, refusal: Refusal) -> None:
        self.reason = refusal


@pytest.fixture
def partition() -> Partition:
    (partition,) = Hub(HubConfig(name="h"), ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))).partitions
    return partition


@pytest.mark.parametrize(("first", "second"), [(1, 2), (1, 1), (0, 0), (None, 0)])
def test_an_epoch_as_high_takes_the_partition(partition: Partition, first: int | None, second: int) -> None:
    loser, winner = Reader(first), Reader(second)
    partition.join("$default", loser)
    partition.join("$default", winner)
    assert loser.reason is not None
    assert loser.reason.condition == errors.LINK_STOLEN
    assert winner.reason is None


@pytest.mark.parametrize(("first", "second"), [(2, 1), (0, None)])
def test_a_lower_epoch_or_none_is_refused(partition: Partition, first: int, second: int | None) -> None:
    holder = Reader(first)
    partition.join("$default", holder)
    with pytest.raises(Refusal) as refused:
        partition.join("$default", Reader(second))
    assert refused.value.condition == errors.LINK_STOLEN
    assert holder.reason is None
    partition.join("another group", Reader(second))


def test_readers_without_an_epoch_share_a_partition_up_to_the_limit(partition: Partition) -> None:
    for _ in range(MAX_READERS):
        partition.join("$default", Reader())
    with pytest.raises(Refusal) as refused:
        partition.join("$default", Reader())
    assert refused.value.condition == errors.RESOURCE_LIMIT_EXCEEDED


def test_the_client_raises_for_a_reader_that_is_refused(broker: RunningBroker, producer: OpenProducer) -> None:
    with producer("by-time") as client:
        client.send_batch([EventData("x")])
    hub = broker.inspect("hubs", lambda hubs: hubs.hub("by-time"))
    holder = Reader(5)
    broker.inspect("hubs", lambda _: hub.partitions[0].join("$default", holder))
    consumer = EventHubConsumerClient.from_connection_string(
        broker.connection_string("hubs"), consumer_group="$Default", eventhub_name="by-time", retry_total=0
    )
    seen: list[Exception] = []

    def on_error(_: object, error: Exception) -> None:
        seen.append(error)
        consumer.close()

    consumer.receive(lambda *_: None, on_error=on_error, partition_id="0", owner_level=1)
    assert isinstance(seen[0], EventHubError)
    assert "epoch 5" in str(seen[0])
