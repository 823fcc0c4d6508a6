"""Event hubs, as azure-eventhub sees them."""

import asyncio
import datetime as dt
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient, TransportType
from azure.eventhub.aio import EventHubConsumerClient as AsyncConsumer
from azure.eventhub.aio import EventHubProducerClient as AsyncProducer
from azure.eventhub.exceptions import EventHubError

from broker.tests.reading_events import Events, read_events
from broker.tests.sdk_calls import some
from busway_broker.thread import RunningBroker

type Consume = Callable[..., Events]


@pytest.fixture
def hub(entity: Callable[[str], str]) -> str:
    return entity("hub")


@pytest.fixture
def producer(broker: RunningBroker, hub: str) -> Iterator[EventHubProducerClient]:
    with EventHubProducerClient.from_connection_string(
        broker.connection_string("hubs"), eventhub_name=hub, transport_type=TransportType.Amqp
    ) as producer:
        yield producer


@pytest.fixture
def consume(broker: RunningBroker, hub: str) -> Consume:
    """Read *count* events of all partitions, or of one."""
    return partial(read_events, broker.connection_string("hubs"), hub)


def bodies(events: Events) -> list[str]:
    return [event.body_as_str() for _, event in events]


def send(producer: EventHubProducerClient, texts: Sequence[str], **options: Any) -> None:
    producer.send_batch([EventData(text) for text in texts], **options)


def test_a_hub_tells_its_properties(producer: EventHubProducerClient, hub: str) -> None:
    properties = producer.get_eventhub_properties()
    assert properties["eventhub_name"] == hub
    assert properties["partition_ids"] == ["0", "1", "2", "3"]
    send(producer, ["a", "b"], partition_id="2")
    partition = producer.get_partition_properties("2")
    assert (partition["beginning_sequence_number"], partition["last_enqueued_sequence_number"]) == (0, 1)
    assert partition["is_empty"] is False
    assert producer.get_partition_properties("1")["is_empty"] is True


def test_events_of_a_partition_arrive_in_order_with_what_the_service_assigns(
    producer: EventHubProducerClient, consume: Consume
) -> None:
    event = EventData("body")
    event.properties = {"text": "t", "number": 1, "binary": b"\x00\xff"}
    event.message_id, event.correlation_id, event.content_type = "id", "correlation", "text/plain"
    producer.send_batch([event, EventData("second")], partition_id="1")
    (partition, first), (_, second) = consume(2, partition_id="1")
    assert partition == "1"
    assert (first.body_as_str(), second.body_as_str()) == ("body", "second")
    assert (first.sequence_number, second.sequence_number) == (0, 1)
    assert first.offset == "0"
    assert int(some(second.offset)) > 0
    assert first.properties[b"binary"] == b"\x00\xff"
    assert (first.message_id, first.correlation_id, first.content_type) == ("id", "correlation", "text/plain")
    assert abs(dt.datetime.now(dt.UTC) - some(first.enqueued_time)) < dt.timedelta(seconds=10)


def test_events_with_one_key_share_a_partition(producer: EventHubProducerClient, consume: Consume) -> None:
    for number in range(5):
        send(producer, [str(number)], partition_key="customer")
    events = consume(5)
    assert len({partition for partition, _ in events}) == 1
    assert bodies(events) == list("01234")
    assert {event.partition_key for _, event in events} == {b"customer"}


def test_events_without_a_key_go_round(producer: EventHubProducerClient, consume: Consume) -> None:
    for number in range(8):
        send(producer, [str(number)])
    partitions = [partition for partition, _ in consume(8)]
    assert sorted(partitions) == sorted("0123" * 2)


def test_reading_starts_at_the_given_position(producer: EventHubProducerClient, consume: Consume) -> None:
    send(producer, ["a", "b", "c"], partition_id="0")
    _, b, _ = consume(3, partition_id="0")
    assert bodies(consume(1, partition_id="0", starting_position=b[1].sequence_number)) == ["c"]
    assert bodies(
        consume(2, partition_id="0", starting_position=b[1].sequence_number, starting_position_inclusive=True)
    ) == ["b", "c"]
    assert bodies(consume(1, partition_id="0", starting_position=b[1].offset)) == ["c"]
    moment = some(b[1].enqueued_time) - dt.timedelta(seconds=1)
    assert bodies(consume(3, partition_id="0", starting_position=moment)) == ["a", "b", "c"]


def test_latest_sees_only_what_comes_after(producer: EventHubProducerClient, consume: Consume) -> None:
    send(producer, ["old"], partition_id="0")
    later = threading.Timer(1, send, [producer, ["new"]], {"partition_id": "0"})
    later.start()
    assert bodies(consume(1, partition_id="0", starting_position="@latest")) == ["new"]
    later.join()


def test_consumer_groups_read_independently(producer: EventHubProducerClient, consume: Consume) -> None:
    send(producer, ["a"], partition_id="0")
    assert bodies(consume(1, partition_id="0")) == ["a"]
    assert bodies(consume(1, partition_id="0", group="second")) == ["a"]
    with pytest.raises(EventHubError):
        consume(1, partition_id="0", group="missing")


def test_metrics_come_with_events_when_asked_for(producer: EventHubProducerClient, consume: Consume) -> None:
    send(producer, ["a", "b"], partition_id="0")
    events = consume(2, partition_id="0", track_last_enqueued_event_properties=True)
    metrics = [some(event._message.delivery_annotations) for _, event in events]
    assert metrics[0][b"last_enqueued_sequence_number"] == 1


def test_a_higher_epoch_takes_the_partition(broker: RunningBroker, hub: str, producer: EventHubProducerClient) -> None:
    send(producer, ["a"], partition_id="0")
    connection_string = broker.connection_string("hubs")

    async def read(client: AsyncConsumer, seen: asyncio.Future[str], lost: asyncio.Future[str], **options: Any) -> None:
        async def on_event(_: object, event: EventData | None) -> None:
            seen.set_result(some(event).body_as_str())

        async def on_error(_: object, error: Exception) -> None:
            if not lost.done():
                lost.set_result(str(error))

        await client.receive(on_event, on_error=on_error, starting_position="-1", partition_id="0", **options)

    async def run() -> str:
        clients = [
            AsyncConsumer.from_connection_string(
                connection_string, consumer_group="$Default", eventhub_name=hub, retry_total=0
            )
            for _ in range(2)
        ]
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[str]] = [loop.create_future() for _ in range(4)]
        first_seen, first_lost, second_seen, second_lost = futures
        first = asyncio.create_task(read(clients[0], first_seen, first_lost, owner_level=1))
        await asyncio.wait_for(first_seen, 5)
        second = asyncio.create_task(read(clients[1], second_seen, second_lost, owner_level=2))
        await asyncio.wait_for(second_seen, 5)
        reason = await asyncio.wait_for(first_lost, 5)
        assert not second_lost.done()
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        for client in clients:
            await client.close()
        return reason

    assert "higher epoch of '2' is created" in asyncio.run(run())


def test_the_asynchronous_clients_behave_the_same(broker: RunningBroker, hub: str) -> None:
    async def run() -> list[str]:
        connection_string = broker.connection_string("hubs")
        async with AsyncProducer.from_connection_string(connection_string, eventhub_name=hub) as producer:
            batch = await producer.create_batch(partition_key="k")
            for number in range(100):
                batch.add(EventData(str(number)))
            await producer.send_batch(batch)
        seen: list[str] = []
        consumer = AsyncConsumer.from_connection_string(connection_string, consumer_group="$Default", eventhub_name=hub)

        async def on_event(_: object, event: EventData | None) -> None:
            seen.append(some(event).body_as_str())
            if len(seen) == 100:
                done.set()

        done = asyncio.Event()
        receiving = asyncio.create_task(consumer.receive(on_event, starting_position="-1"))
        async with asyncio.timeout(10):
            await done.wait()
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        await consumer.close()
        return seen

    assert asyncio.run(run()) == [str(number) for number in range(100)]
