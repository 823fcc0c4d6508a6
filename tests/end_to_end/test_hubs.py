"""The function app of this repository to, from and between event hubs: keys, sessions, partitions and their order."""

import textwrap
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.message.arrival import Origin
from shared.message.message import Message
from tests.end_to_end.host_process import ROOT, HostProcess

KEYS = ("amsterdam", "berlin", "chicago", "delhi", "essen")
EACH = 12

WEST = NamespaceConfig(
    name="west",
    queues=(QueueConfig(name="orders", requires_session=True), QueueConfig(name="jobs"), QueueConfig(name="rejected")),
    hubs=(
        HubConfig(name="telemetry", partition_count=4, consumer_groups=("key", "keep", "queue", "one")),
        HubConfig(name="rejected"),
    ),
)
EAST = NamespaceConfig(
    name="east",
    queues=(
        QueueConfig(name="orders", requires_session=True),
        QueueConfig(name="readings", requires_session=True),
        QueueConfig(name="one"),
    ),
    hubs=(
        HubConfig(name="stream", partition_count=4),
        HubConfig(name="jobs", partition_count=2),
        HubConfig(name="by-key", partition_count=4),
        HubConfig(name="kept", partition_count=4),
    ),
)
CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
hub-west: {kind: event-hubs, setting: WEST}
east: {kind: service-bus, setting: EAST}
hub-east: {kind: event-hubs, setting: EAST}
"""
TASKS = """
task: sessions-to-hub
source: {connection: west, queue: orders, sessions: true}
routes: [{target: {connection: hub-east, hub: stream}}]
rejects: {connection: west, queue: rejected}
---
task: hub-to-sessions
source: {connection: hub-east, hub: stream}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: west, queue: rejected}
---
task: queue-to-partition
source: {connection: west, queue: jobs}
routes: [{target: {connection: hub-east, hub: jobs, partition: 1}}]
rejects: {connection: west, queue: rejected}
---
task: hub-to-hub
source: {connection: hub-west, hub: telemetry, consumer_group: key}
routes: [{target: {connection: hub-east, hub: by-key}}]
rejects: {connection: hub-west, hub: rejected}
---
task: hub-to-hub-partitions
source: {connection: hub-west, hub: telemetry, consumer_group: keep}
routes: [{target: {connection: hub-east, hub: kept, partition: keep}}]
rejects: {connection: hub-west, hub: rejected}
---
task: hub-to-queue
source: {connection: hub-west, hub: telemetry, consumer_group: queue}
routes: [{target: {connection: east, queue: readings}}]
rejects: {connection: hub-west, hub: rejected}
---
task: one-partition
source: {connection: hub-west, hub: telemetry, consumer_group: one, partitions: [2]}
routes: [{target: {connection: east, queue: one}}]
rejects: {connection: hub-west, hub: rejected}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp("hubs")
    (folder / "tasks").mkdir()
    (folder / "connections.yaml").write_text(CONNECTIONS)
    (folder / "tasks" / "all.yaml").write_text(textwrap.dedent(TASKS))
    with RunningBroker([WEST, EAST]) as running:
        settings = {
            "BUSWAY_CONFIG": str(folder),
            "WEST": running.connection_string("west"),
            "EAST": running.connection_string("east"),
        }
        with HostProcess(str(ROOT), folder, settings) as host:
            host.wait_until_ready()
            yield running
            log = host.log()
            assert host.stop() == 0, log


@pytest.fixture(scope="module")
def clients(broker: RunningBroker) -> Iterator[dict[str, ServiceBusClient]]:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("west")) as west,
        ServiceBusClient.from_connection_string(broker.connection_string("east")) as east,
    ):
        yield {"west": west, "east": east}


@pytest.fixture(scope="module")
def telemetry(broker: RunningBroker) -> set[str]:
    """Publish readings of every city with its key, and some to each partition without one."""
    connection = broker.connection_string("west")
    with EventHubProducerClient.from_connection_string(connection, eventhub_name="telemetry") as producer:
        for number in range(EACH):
            for key in KEYS:
                producer.send_batch([EventData(f"{key}-{number}")], partition_key=key)
    return {f"{key}-{number}" for key in KEYS for number in range(EACH)}


def hub_events(broker: RunningBroker, site: str, hub: str) -> list[list[Any]]:
    """Return the events of a hub, by their partitions."""

    def events_of(partition: Any) -> list[Message]:
        found: list[Message] = []
        while (each := partition.event(len(found))) is not None:
            found.append(Message.received(each.encode(), Origin(site, hub, partition.partition_id)))
        return found

    return broker.inspect(site, lambda namespace: [events_of(each) for each in namespace.hubs[hub].partitions])


def arrived(broker: RunningBroker, site: str, hub: str, count: int, seconds: int = 20) -> list[list[Any]]:
    end = time.monotonic() + seconds
    while sum(map(len, partitions := hub_events(broker, site, hub))) < count:
        assert time.monotonic() < end, f"{hub}: {[len(each) for each in partitions]} arrived, expected {count} in all"
        time.sleep(0.05)
    return partitions


def take(client: ServiceBusClient, queue: str, count: int, **options: Any) -> list[Any]:
    messages: list[Any] = []
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(queue, receive_mode=mode, **options) as receiver:
        while len(messages) < count:
            more = receiver.receive_messages(count - len(messages), max_wait_time=20)
            assert more, f"{queue}: {len(messages)} of {count} arrived"
            messages += more
    return messages


def bodies(events: list[Any]) -> list[str]:
    return [each.body.decode() for each in events]


def by_key(partitions: list[list[Any]]) -> dict[str | None, list[tuple[int, str]]]:
    found: dict[str | None, list[tuple[int, str]]] = {}
    for number, events in enumerate(partitions):
        for each in events:
            found.setdefault(each.partition_key, []).append((number, each.body.decode()))
    return found


def assert_every_key_in_order(found: dict[str | None, list[tuple[int, str]]]) -> None:
    assert set(found) == set(KEYS)
    for key, events in found.items():
        assert [body for _, body in events] == [f"{key}-{number}" for number in range(EACH)]
        assert len({partition for partition, _ in events}) == 1


def test_sessions_become_keys_and_sessions_again(broker: RunningBroker, clients: dict[str, ServiceBusClient]) -> None:
    with clients["west"].get_queue_sender("orders") as sender:
        for number in range(EACH):
            sender.send_messages(
                [ServiceBusMessage(f"{key}-{number}", session_id=key, message_id=f"{key}-{number}") for key in KEYS]
            )
    partitions = arrived(broker, "east", "stream", EACH * len(KEYS))
    assert_every_key_in_order(by_key(partitions))
    for key in KEYS:
        messages = take(clients["east"], "orders", EACH, session_id=key)
        assert [str(each) for each in messages] == [f"{key}-{number}" for number in range(EACH)]
        assert {each.partition_key for each in messages} == {None}
        properties = messages[0].application_properties
        assert properties[b"repl-path"] == b"west;hub-east"
        assert [name for name in properties if name.startswith((b"repl-sb", b"repl-eh"))] == []


def test_fields_without_an_event_equivalent_are_kept_in_properties(
    broker: RunningBroker, clients: dict[str, ServiceBusClient]
) -> None:
    with clients["west"].get_queue_sender("jobs") as sender:
        sender.send_messages(
            [
                ServiceBusMessage(f"{n}", message_id=f"j{n}", subject="job", time_to_live=timedelta(seconds=90))
                for n in range(5)
            ]
        )
    partitions = arrived(broker, "east", "jobs", 5)
    assert [bodies(each) for each in partitions] == [[], [str(n) for n in range(5)]]
    for each in partitions[1]:
        life = each.application_property("repl-sb-time-to-live")
        assert (life.kind, life.payload) == ("uint", 90_000)
        assert (each.subject, each.partition_key) == ("job", None)


def test_from_hub_to_hub_every_key_keeps_its_order_and_partition(broker: RunningBroker, telemetry: set[str]) -> None:
    partitions = arrived(broker, "east", "by-key", len(telemetry))
    assert_every_key_in_order(by_key(partitions))
    sources = hub_events(broker, "west", "telemetry")
    assert [sorted(bodies(each)) for each in partitions] == [sorted(bodies(each)) for each in sources]
    assert len({each.message_id.payload for events in partitions for each in events}) == len(telemetry)


def test_a_kept_partition_keeps_the_order_of_all_its_keys(broker: RunningBroker, telemetry: set[str]) -> None:
    partitions = arrived(broker, "east", "kept", len(telemetry))
    sources = hub_events(broker, "west", "telemetry")
    assert [bodies(each) for each in partitions] == [bodies(each) for each in sources]
    assert [[e.partition_key for e in each] for each in partitions] == [
        [e.partition_key for e in each] for each in sources
    ]


@pytest.mark.usefixtures("telemetry")
def test_keys_become_sessions_in_their_order(clients: dict[str, ServiceBusClient]) -> None:
    for key in KEYS:
        messages = take(clients["east"], "readings", EACH, session_id=key)
        assert [str(each) for each in messages] == [f"{key}-{number}" for number in range(EACH)]


@pytest.mark.usefixtures("telemetry")
def test_a_task_of_one_partition_copies_only_its_events(
    broker: RunningBroker, clients: dict[str, ServiceBusClient]
) -> None:
    expected = bodies(hub_events(broker, "west", "telemetry")[2])
    assert 0 < len(expected) < EACH * len(KEYS)
    messages = take(clients["east"], "one", len(expected))
    assert [str(each) for each in messages] == expected
    assert broker.counts("east")["one"].active == 0


def test_nothing_was_rejected(broker: RunningBroker) -> None:
    assert broker.counts("west")["rejected"].active == 0
    assert hub_events(broker, "west", "rejected") == [[]]
