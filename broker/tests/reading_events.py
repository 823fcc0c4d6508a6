"""Reads events with azure-eventhub, as many as a test waits for."""

import threading
from typing import Any

from azure.eventhub import EventData, EventHubConsumerClient, PartitionContext

type Events = list[tuple[str, EventData]]
"""Events with the partition that each was read from."""


def read_events(string: str, hub: str, count: int, *, group: str = "$Default", **options: Any) -> Events:
    """Return *count* events of all partitions, or of one; the error that ends the reading is raised."""
    consumer = EventHubConsumerClient.from_connection_string(string, group, eventhub_name=hub, retry_total=0)
    events: Events = []
    errors: list[Exception] = []
    ended = threading.Event()

    def on_event(context: PartitionContext, event: EventData | None) -> None:
        if event is not None:
            events.append((context.partition_id, event))
        if len(events) >= count:
            ended.set()

    def on_error(_: object, error: Exception) -> None:
        errors.append(error)
        ended.set()

    given: dict[str, Any] = {"on_event": on_event, "on_error": on_error, "starting_position": "-1"} | options
    thread = threading.Thread(target=lambda: consumer.receive(**given))
    thread.start()
    ended.wait(10)
    consumer.close()
    thread.join(30)
    if errors:
        raise errors[0]
    assert len(events) == count
    return events
