"""An event with binary properties, which Azure's host cannot pass to a function: nothing is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from tests.end_to_end.host_process import ROOT, HostProcess

SITE = NamespaceConfig(
    name="site", queues=(QueueConfig(name="readings"), QueueConfig(name="rejected")), hubs=(HubConfig(name="hub"),)
)
CONNECTIONS = "hubs: {kind: event-hubs, setting: HUBS}\nqueues: {kind: service-bus, setting: QUEUES}\n"
TASK = """
task: readings
source: {connection: hubs, hub: hub}
routes: [{target: {connection: queues, queue: readings}}]
rejects: {connection: queues, queue: rejected}
"""
DIGEST = b"\x00\xff\x10"


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([SITE]) as running:
        yield running


@pytest.fixture
def host(broker: RunningBroker, tmp_path: Path) -> Iterator[HostProcess]:
    folder = tmp_path / "config"
    (folder / "tasks").mkdir(parents=True)
    (folder / "connections.yaml").write_text(CONNECTIONS)
    (folder / "tasks" / "readings.yaml").write_text(TASK)
    settings = {
        "BUSWAY_CONFIG": str(folder),
        "HUBS": broker.connection_string("site"),
        "QUEUES": broker.connection_string("site"),
    }
    with HostProcess(str(ROOT), tmp_path, settings) as process:
        process.wait_until_ready()
        yield process
        assert process.stop() == 0


def publish(broker: RunningBroker, *events: EventData, namespace: str = "site") -> None:
    connection = broker.connection_string(namespace)
    with EventHubProducerClient.from_connection_string(connection, eventhub_name="hub") as producer:
        producer.send_batch(list(events))


def event(body: str, **properties: Any) -> EventData:
    made = EventData(body)
    made.properties = dict(properties.items())
    made.message_id = f"id-{body}"
    return made


def test_the_batch_stays_in_the_hub(broker: RunningBroker, host: HostProcess) -> None:
    publish(broker, event("before"))
    host.wait_for(lambda: broker.counts("site")["readings"].active == 1)
    publish(broker, event("one"), event("two", digest=DIGEST), event("three"))
    failed = "could not bind messages: HostCannotBind: a binary, list or array as a property"
    host.wait_for(lambda: host.log().count(failed) >= 2)  # it is tried again
    counts = broker.counts("site")
    assert (counts["readings"].active, counts["rejected"].active) == (1, 0)


def test_an_event_with_a_map_property_blocks_its_partition(broker: RunningBroker, host: HostProcess) -> None:
    publish(broker, event("one", origin={"floor": 1}))
    host.wait_for(lambda: "the partition is blocked" in host.log())
    assert broker.counts("site")["readings"].active == 0
