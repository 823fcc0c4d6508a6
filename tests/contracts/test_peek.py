"""The private request of the Service Bus SDK with which a tap peeks, against the broker."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.ends.service_bus.peek import peeker_opener
from shared.errors import TargetUnavailable
from shared.journal.peeking_tap import PeekingTap
from shared.journal.record import Role
from shared.journal.tap import Tap
from shared.message.arrival import Origin
from tests.memory_sink import MemorySink

LONG_AGO = 1_600_000_000_000


class Marks:
    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def read_mark(self, name: str) -> bytes | None:
        return self.kept.get(name)

    async def write_mark(self, name: str, content: bytes) -> None:
        self.kept[name] = content


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([NamespaceConfig(name="east", queues=(QueueConfig(name="q"),))]) as running:
        yield running


def peeking(broker: RunningBroker, sink: MemorySink, marks: Marks, queue: str = "q", **options: Any) -> PeekingTap:
    place = Origin("east", queue)
    tap = Tap(
        "watch",
        "copy",
        Role.SOURCE,
        watched=place,
        is_hub_watched=False,
        place=place,
        target=f"east/{queue}",
        is_hub=False,
        has_same_numbers=True,
        is_peek=True,
        sink=sink,
    )
    connection = broker.connection_string("east")

    def open_client() -> AsyncServiceBusClient:
        return AsyncServiceBusClient.from_connection_string(connection, **options)

    return PeekingTap(tap, place, peeker_opener(open_client, place), marks)


def test_each_message_is_seen_once_and_none_is_taken(broker: RunningBroker) -> None:
    sink, marks = MemorySink(), Marks()
    client = ServiceBusClient.from_connection_string(broker.connection_string("east"))
    with client, client.get_queue_sender("q") as sender:
        sender.send_messages([ServiceBusMessage(f"{n}", message_id=f"m{n}") for n in range(300)])
        tap = peeking(broker, sink, marks)
        assert asyncio.run(tap.look()) == 300
        assert asyncio.run(tap.look()) == 0
        sender.send_messages(ServiceBusMessage("x", message_id="later"))
        # Another instance continues after the last mark.
        assert asyncio.run(peeking(broker, sink, marks).look()) == 1
    records = sink.records("copy", Role.SOURCE)
    assert [record["message_id"] for record in records] == [*(f"m{n}" for n in range(300)), "later"]
    assert [record["src_seq"] for record in records] == list(range(1, 302))
    assert broker.counts("east")["q"].active == 301


def test_a_recreated_queue_is_read_from_its_first_message(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    count = broker.counts("east")["q"].active
    for mark, seen in (
        ({"sequence_number": 100, "enqueued_time": LONG_AGO}, count),  # another queue's numbers
        ({"sequence_number": 5000, "enqueued_time": 2 * LONG_AGO}, 0),
        ({"sequence_number": 5000}, count),  # does not say which queue
    ):
        marks = Marks()
        marks.kept["watch"] = json.dumps(mark).encode()
        tap = peeking(broker, MemorySink(), marks)
        caplog.clear()
        assert asyncio.run(tap.look()) == seen
        assert ("created again" in caplog.text) == (seen > 0 and "enqueued_time" in mark)
        if seen:
            assert json.loads(marks.kept["watch"])["sequence_number"] == count


def test_a_missing_entity_cannot_be_peeked(broker: RunningBroker) -> None:
    with pytest.raises(TargetUnavailable, match="east/gone: it cannot be peeked"):
        asyncio.run(peeking(broker, MemorySink(), Marks(), "gone", retry_total=0).look())
