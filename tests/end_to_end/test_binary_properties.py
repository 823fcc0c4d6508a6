"""An event with binary properties, which no SDK type takes on Azure: nothing is lost, and a stock trigger helps."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode

from local.broker.config import HubConfig, NamespaceConfig, QueueConfig
from local.broker.thread import RunningBroker
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
def host(broker: RunningBroker, tmp_path: Path) -> Callable[[str], HostProcess]:
    """Return a function that starts the app with a trigger; the checkpoints outlast the app."""
    folder = tmp_path / "config"
    (folder / "tasks").mkdir(parents=True)
    (folder / "connections.yaml").write_text(CONNECTIONS)
    settings = {
        "BUSWAY_CONFIG": str(folder),
        "BUSWAY_CHECKPOINTS": str(tmp_path / "checkpoints.json"),
        "HUBS": broker.connection_string("site"),
        "QUEUES": broker.connection_string("site"),
    }

    def start(trigger: str) -> HostProcess:
        (folder / "tasks" / "readings.yaml").write_text(f"{TASK}trigger: {trigger}\n")
        return HostProcess(str(ROOT), tmp_path, settings)

    return start


def publish(broker: RunningBroker, *events: EventData) -> None:
    connection = broker.connection_string("site")
    with EventHubProducerClient.from_connection_string(connection, eventhub_name="hub") as producer:
        producer.send_batch(list(events))


def event(body: str, **properties: Any) -> EventData:
    made = EventData(body)
    made.properties = dict(properties.items())
    made.message_id = f"id-{body}"
    return made


def test_the_batch_stays_in_the_hub_until_a_stock_trigger_receives_it(
    broker: RunningBroker, host: Callable[[str], HostProcess]
) -> None:
    with host("raw") as raw:
        raw.wait_until_ready()
        publish(broker, event("before"))
        raw.wait_for(lambda: broker.counts("site")["readings"].active == 1)
        publish(broker, event("one"), event("two", digest=DIGEST), event("three"))
        failed = "could not bind messages: HostCannotBind: a binary, list or array as a property"
        raw.wait_for(lambda: raw.log().count(failed) >= 2)  # it is tried again
        assert broker.counts("site")["readings"].active == 1
        assert raw.stop() == 0
    with host("stock") as stock:
        stock.wait_until_ready()
        stock.wait_for(lambda: broker.counts("site")["readings"].active == 4)
        assert "readings: uses the stock trigger" in stock.log()
        assert stock.stop() == 0
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("site")) as client,
        client.get_queue_receiver("readings", receive_mode=mode) as receiver,
    ):
        messages = receiver.receive_messages(4, max_wait_time=5)
    assert [(str(each), each.message_id) for each in messages] == [
        (body, f"id-{body}") for body in ("before", "one", "two", "three")
    ]
    properties: list[Any] = [each.application_properties for each in messages]
    assert properties[2][b"digest"] == base64.b64encode(DIGEST)
    assert broker.counts("site")["rejected"].active == 0
    # The same event by both triggers has one identity and one place in the history.
    assert [int(each[b"repl-sequence"]) for each in properties] == [0, 1, 2, 3]


def test_no_trigger_receives_an_event_with_a_map_property(
    broker: RunningBroker, host: Callable[[str], HostProcess]
) -> None:
    with host("stock") as stock:
        stock.wait_until_ready()
        publish(broker, event("one", origin={"floor": 1}))
        stock.wait_for(lambda: "the partition is blocked" in stock.log())
        assert broker.counts("site")["readings"].active == 0
        assert stock.stop() == 0
