"""Retention of events by time and by size, and who may read a partition when."""

import asyncio
import datetime as dt
import re
from collections.abc import Callable, Iterator

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError

from busway_broker import errors
from busway_broker.config import EntityStatus, HubConfig, LinkLimits, NamespaceConfig
from busway_broker.core.event import read_event
from busway_broker.core.hub import MAX_READERS, Coordinate, Hub, Partition, Position
from busway_broker.errors import Refusal
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.protocol.hub_links import position_of
from busway_broker.thread import RunningBroker
from shared.amqp.values import string
from shared.clock import ManualClock
from shared.ends.event_hubs.clients import event_hub_client
from shared.ends.event_hubs.output import EventHubsOutput
from shared.ends.event_hubs.receiver import EventHub
from shared.ends.namespace import Namespace
from shared.errors import TargetRefused, TargetUnavailable
from shared.protocols import Outgoing
from tests.messages import delivered
from tests.wire.sending import event_hubs, outgoing, sent, to_hub

type OpenProducer = Callable[[str], EventHubProducerClient]

HOUR = dt.timedelta(hours=1)
HUBS = (
    HubConfig(name="by-time", message_retention=HOUR),
    HubConfig(name="by-size", retention_size=10_000),
)


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    clock = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    # The SDK leaks the socket of a connection that ends while it is idle.
    links = LinkLimits(publisher_idle=None, connection_idle=None)
    with RunningBroker([NamespaceConfig(name="hubs", hubs=HUBS, links=links)], clock) as running:
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
        self.name = "nil"
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
    assert "higher epoch '5'" in str(seen[0])


@pytest.mark.parametrize(
    ("coordinate", "value", "is_inclusive", "expected"),
    [
        (
            Coordinate.OFFSET,
            1_000_000,
            False,
            "The supplied offset '1000000' is invalid. The last offset in the system is",
        ),
        (
            Coordinate.SEQUENCE_NUMBER,
            3,
            False,
            "The supplied sequence number '3' is invalid. The last sequence number in the system is '2'",
        ),
        (Coordinate.SEQUENCE_NUMBER, 3, True, "The supplied sequence number '3' is invalid."),
        (Coordinate.SEQUENCE_NUMBER, 2, False, None),
        (Coordinate.ENQUEUED_TIME, 2**60, False, None),
        (Coordinate.OFFSET, None, False, None),
    ],
)
def test_a_position_behind_the_last_event_is_refused(
    partition: Partition,
    coordinate: Coordinate,
    value: int | None,
    is_inclusive: bool,
    expected: str | None,
) -> None:
    # EH04: azure-sdk-for-python 30931, azure-sdk-for-net 9213
    partition.append([read_event(delivered(number)) for number in range(3)])
    position = Position(coordinate, value, is_inclusive)
    if expected is None:
        assert partition.start(position) == 3
        return
    with pytest.raises(Refusal, match=re.escape(expected)) as refused:
        partition.start(position)
    assert refused.value.condition == errors.ARGUMENT_ERROR
    # One offset beyond the last event is enough.
    last = partition.last
    assert last is not None
    assert partition.start(Position(Coordinate.OFFSET, last.offset, is_inclusive=False)) == 3
    with pytest.raises(Refusal, match=f"The last offset in the system is '{last.offset}'"):
        partition.start(Position(Coordinate.OFFSET, last.offset + 1, is_inclusive=False))


def test_an_empty_partition_begins_and_ends_at_minus_one_and_takes_no_position(partition: Partition) -> None:
    # EH46: azure-sdk-for-net 43642
    assert (partition.begin_sequence_number, partition.is_empty) == (-1, True)
    assert partition.start(Position(Coordinate.OFFSET, -1, is_inclusive=False)) == 0
    with pytest.raises(
        Refusal, match=re.escape("The supplied offset '0' is invalid. The last offset in the system is '-1'")
    ):
        partition.start(Position(Coordinate.OFFSET, 0, is_inclusive=False))


def test_refused_readers_get_the_texts_of_the_service(partition: Partition) -> None:
    # EH17, EH41, EH42
    for _ in range(MAX_READERS):
        partition.join("$default", Reader())
    with pytest.raises(
        Refusal, match=re.escape("in a consumer group which is 5. List of connected receivers - nil, nil, nil")
    ) as refused:
        partition.join("$default", Reader())
    assert refused.value.condition == errors.RESOURCE_LIMIT_EXCEEDED
    partition.join("$default", Reader(3))
    with pytest.raises(Refusal, match=re.escape("created with epoch of '3', and so non-epoch receiver is not allowed")):
        partition.join("$default", Reader())
    with pytest.raises(
        Refusal, match=re.escape("A receiver with a higher epoch '3' already exists. A new receiver with epoch 0")
    ):
        partition.join("$default", Reader(0))


def test_a_link_that_sends_to_a_hub_ends_after_half_an_hour_without_use() -> None:
    # EH30: azure-sdk-for-java 10682, azure-event-hubs-python 88
    clock = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    now = 0.0

    async def scenario(broker: RunningBroker) -> None:
        nonlocal now
        settings = {"HUBS": broker.connection_string("hubs")}
        output = EventHubsOutput("hubs", lambda name: event_hub_client("HUBS", settings, name), now=lambda: now)
        event = Outgoing(delivered(1), None, None, "k")
        assert await output.send("by-time", [event], timeout_seconds=10) == [None]
        for seconds in (31 * 60, 8 * 3600):
            broker.advance(seconds)
            now += seconds
            # The first event after a quiet night is neither refused nor late.
            assert await output.send("by-time", [event], timeout_seconds=10) == [None]
        broker.advance(31 * 60)
        [error] = await output.send("by-time", [event], timeout_seconds=10)  # the output does not know of the time
        assert error is not None
        await output.close()

    with RunningBroker([NamespaceConfig(name="hubs", hubs=HUBS)], clock) as broker:
        asyncio.run(scenario(broker))


@pytest.mark.parametrize(
    ("status", "sends", "reads"),
    [
        (EntityStatus.ACTIVE, True, True),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
        (EntityStatus.DISABLED, False, False),
    ],
)
def test_a_hub_can_be_disabled(
    status: EntityStatus,
    sends: bool,
    reads: bool,
) -> None:
    # EH59: EntityStatus of azure-mgmt-eventhub
    async def scenario(address: str) -> tuple[bool, bool]:
        [[answer]] = await sent(event_hubs(address), "h", [outgoing(1)])
        assert answer is None or (isinstance(answer, TargetRefused) and "it is disabled" in str(answer))
        hub = EventHub(Namespace("HUBS", address), "h", "$Default")
        if not reads:
            with pytest.raises(TargetRefused, match="entity-disabled"):
                await hub.open("0", "-1", 0)
            return answer is None, False
        await (await hub.open("0", "-1", 0)).close()
        return answer is None, True

    with RunningBroker([NamespaceConfig(name="hubs", hubs=(HubConfig(name="h", status=status),))]) as broker:
        assert asyncio.run(scenario(broker.connection_string("hubs"))) == (sends, reads)


def test_a_throttled_hub_asks_for_four_seconds() -> None:
    # EH28: azure-sdk-for-java 11003
    with RunningBroker([NamespaceConfig(name="hubs", hubs=HUBS)]) as broker:
        broker.faults("hubs").add(
            Fault(effect=Effect.THROTTLE, entity="by-time*", operations=frozenset((Operation.SEND,)))
        )
        with (
            EventHubProducerClient.from_connection_string(
                broker.connection_string("hubs"), eventhub_name="by-time", retry_total=0
            ) as client,
            pytest.raises(EventHubError, match=re.escape("Error code : 50002. Please wait 4 seconds and try again")),
        ):
            client.send_batch([EventData("x")])
        [[answer]] = to_hub(broker.connection_string("hubs"), "by-time", [outgoing(1)])
        assert isinstance(answer, TargetUnavailable)
        assert answer.retry_after == dt.timedelta(seconds=4)


def test_the_filter_of_earlier_tools_is_a_time() -> None:
    # EH44: Azure/iothub-explorer 57
    selector = string("amqp.annotation.x-opt-enqueuedtimeutc > '1700000000000'")
    expected = Position(Coordinate.ENQUEUED_TIME, 1_700_000_000_000, is_inclusive=False)
    assert position_of(selector, is_replicated=False) == expected
