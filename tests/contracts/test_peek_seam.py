"""The private request of the Service Bus SDK that a peeking tap makes, over the wire."""

import asyncio
import json
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from local.broker.config import NamespaceConfig, QueueConfig
from local.broker.thread import RunningBroker
from shared.azure.peek import PeekingTap
from shared.errors import TargetUnavailable
from shared.journal.in_memory import MemorySink
from shared.journal.record import Role
from shared.journal.tap import Tap
from shared.message.message import Origin

LONG_AGO = 1_600_000_000_000


class Marks:
    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}

    async def read_mark(self, name):
        return self.kept.get(name)

    async def write_mark(self, name, content) -> None:
        self.kept[name] = content


@pytest.fixture(scope="module")
def broker():
    with RunningBroker([NamespaceConfig(name="east", queues=(QueueConfig(name="q"),))]) as running:
        yield running


def peeking(broker, sink, marks, queue: str = "q", **options):
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
    return PeekingTap(tap, place, lambda: AsyncServiceBusClient.from_connection_string(connection, **options), marks)


def test_everything_is_seen_once_and_nothing_is_taken(broker) -> None:
    sink, marks = MemorySink(), Marks()
    client = ServiceBusClient.from_connection_string(broker.connection_string("east"))
    with client, client.get_queue_sender("q") as sender:
        sender.send_messages([ServiceBusMessage(f"{n}", message_id=f"m{n}") for n in range(300)])
        tap = peeking(broker, sink, marks)
        assert asyncio.run(tap.look()) == 300
        assert asyncio.run(tap.look()) == 0
        sender.send_messages(ServiceBusMessage("x", message_id="later"))
        # Another instance goes on where this one stopped.
        assert asyncio.run(peeking(broker, sink, marks).look()) == 1
    records = sink.records("copy", Role.SOURCE)
    assert [each["message_id"] for each in records] == [*(f"m{n}" for n in range(300)), "later"]
    assert [each["src_seq"] for each in records] == list(range(1, 302))
    assert broker.counts("east")["q"].active == 301


def test_a_queue_that_was_made_anew_is_looked_at_from_its_beginning(broker, caplog: pytest.LogCaptureFixture) -> None:
    count = broker.counts("east")["q"].active
    for mark, seen in (
        ({"sequence_number": 100, "enqueued_time": LONG_AGO}, count),  # those numbers were another queue's
        ({"sequence_number": 5000, "enqueued_time": 2 * LONG_AGO}, 0),
        ({"sequence_number": 5000}, count),  # of which queue it does not say
    ):
        marks = Marks()
        marks.kept["watch"] = json.dumps(mark).encode()
        tap = peeking(broker, MemorySink(), marks)
        caplog.clear()
        assert asyncio.run(tap.look()) == seen
        assert ("made anew" in caplog.text) == (seen > 0 and "enqueued_time" in mark)
        if seen:
            assert json.loads(marks.kept["watch"])["sequence_number"] == count


def test_an_entity_that_is_not_there_cannot_be_peeked(broker) -> None:
    with pytest.raises(TargetUnavailable, match="east/gone: it cannot be peeked"):
        asyncio.run(peeking(broker, MemorySink(), Marks(), "gone", retry_total=0).look())
