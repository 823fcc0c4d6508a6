"""What applications do with event hubs, through Microsoft's SDK: publish, and read until enough has come."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient


def publish(connection: str, hub: str, readings: Sequence[tuple[str | None, str, Mapping[str, Any]]]) -> None:
    """Send events one by one, in their order: key, body and properties, of which message_id is the event's id."""
    with EventHubProducerClient.from_connection_string(connection, eventhub_name=hub) as producer:
        for key, body, properties in readings:
            event = EventData(body)
            named: dict[Any, Any] = dict(properties)
            event.message_id = named.pop("message_id", None)
            event.properties = named
            producer.send_batch([event], partition_key=key)


def read(connection: str, hub: str, count: int, seconds: float = 30) -> dict[str, list[EventData]]:
    """Return the events of each partition from its start, once there are *count* in all."""
    partitions: dict[str, list[EventData]] = {}
    enough = threading.Event()

    def keep(context: Any, event: EventData | None) -> None:
        if event is not None:
            partitions.setdefault(context.partition_id, []).append(event)
            if sum(map(len, partitions.values())) >= count:
                enough.set()

    consumer = EventHubConsumerClient.from_connection_string(connection, consumer_group="$Default", eventhub_name=hub)
    with consumer:
        reading = threading.Thread(target=consumer.receive, args=(keep,), kwargs={"starting_position": "-1"})
        reading.start()
        in_time = enough.wait(seconds)
    reading.join()
    found = {partition: len(events) for partition, events in partitions.items()}
    assert in_time, f"{hub}: {found} events came, expected {count} in all"
    return partitions


def key_of(event: EventData) -> str | None:
    key = event.partition_key
    return key.decode() if isinstance(key, bytes) else key


def bodies_by_key(partitions: Mapping[str, Sequence[EventData]]) -> dict[str | None, list[str]]:
    """Return the bodies of each key in their order; a key is in one partition only."""
    found: dict[str | None, list[str]] = {}
    places: dict[str | None, str] = {}
    for partition, events in partitions.items():
        for event in events:
            key = key_of(event)
            assert key is None or places.setdefault(key, partition) == partition, f"{key} is in two partitions"
            found.setdefault(key, []).append(event.body_as_str())
    return found
