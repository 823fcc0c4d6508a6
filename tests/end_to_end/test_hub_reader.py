"""A task with `reader: app`: events that Azure's host cannot pass to a function arrive, in the order of their keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventHubProducerClient
from azure.eventhub.amqp import AmqpAnnotatedMessage
from azure.storage.blob import ContainerClient

from busway_broker.config import HubConfig, NamespaceConfig
from busway_broker.thread import RunningBroker
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.stores.host_checkpoints import CONTAINER
from tests.azurite import running_azurite
from tests.end_to_end.host_process import ROOT, HostProcess

pytestmark = pytest.mark.long

PLANT = NamespaceConfig(
    name="plant", hubs=(HubConfig(name="Raw", partition_count=4), HubConfig(name="rejected", partition_count=1))
)
OFFICE = NamespaceConfig(name="office", hubs=(HubConfig(name="raw", partition_count=4),))
CONNECTIONS = "plant: {kind: event-hubs, setting: PLANT}\noffice: {kind: event-hubs, setting: OFFICE}\n"
TASK = """
task: raw-to-office
source: {connection: plant, hub: Raw, reader: app}
routes: [{target: {connection: office, hub: raw PARTITION}}]
rejects: {connection: plant, hub: rejected}
"""
# Of each, Azure's host fails at one of its steps (docs/hub-sources.md).
POISON: list[dict[str, Any]] = [
    {"annotations": {b"x-opt-kafka-key": b"press-7"}},
    {"annotations": {b"x-opt-kafka-key": b"press-7"}, "application_properties": {"header": b"\xff"}},
    {"annotations": {b"x-opt-kafka-key": b"press-7"}, "application_properties": {"origin": {"floor": 1}}},
    {"annotations": {b"x-opt-kafka-key": b"press-7"}, "application_properties": {"list": [1, None]}},
]


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([PLANT, OFFICE]) as running:
        yield running


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_azurite(tmp_path_factory.mktemp("storage")) as connection_string:
        yield connection_string


@pytest.fixture
def checkpoints(storage: str) -> Iterator[ContainerClient]:
    with ContainerClient.from_connection_string(storage, CONTAINER) as container:
        if container.exists():
            for name in container.list_blob_names():
                container.delete_blob(name)
        yield container


def host(broker: RunningBroker, storage: str, folder: Path, partition: str = "") -> HostProcess:
    config = folder / "config"
    (config / "tasks").mkdir(parents=True, exist_ok=True)
    (config / "connections.yaml").write_text(CONNECTIONS)
    (config / "tasks/task.yaml").write_text(TASK.replace(" PARTITION", partition))
    names = {"PLANT": "plant", "OFFICE": "office"}
    settings = {each: broker.connection_string(name) for each, name in names.items()}
    return HostProcess(str(ROOT), folder, {"BUSWAY_CONFIG": str(config), "AzureWebJobsStorage": storage, **settings})


def publish(broker: RunningBroker, *bodies: int, partition: str = "2", value: object = None) -> None:
    connection = broker.connection_string("plant")
    with EventHubProducerClient.from_connection_string(connection, eventhub_name="Raw") as producer:
        batch = producer.create_batch(partition_id=partition)
        for body in bodies:
            content: dict[str, Any] = {"data_body": [b"%d" % body]} if value is None else {"value_body": value}
            batch.add(AmqpAnnotatedMessage(**content, **POISON[body % len(POISON)]))
        producer.send_batch(batch)


def arrived(broker: RunningBroker, hub: str = "raw", namespace: str = "office") -> dict[str, list[Message]]:
    def found(entities: Any) -> dict[str, list[Message]]:
        return {
            each.partition_id: [Message.received(event.encode(), Origin("", "")) for event in each.events]
            for each in entities.hubs[hub].partitions
            if each.events
        }

    return broker.inspect(namespace, found)


def bodies(messages: list[Message]) -> list[int]:
    return [int(each.body or b"") for each in messages]


def test_events_of_one_kafka_key_arrive_in_one_partition_and_in_order(
    broker: RunningBroker, storage: str, checkpoints: ContainerClient, tmp_path: Path
) -> None:
    with host(broker, storage, tmp_path) as process:
        process.wait_until_ready()
        for number in range(0, 24, 4):
            publish(broker, *range(number, number + 4))
        publish(broker, 0, value=[None, {"floor": 1}], partition="1")
        process.wait_for(lambda: sum(map(len, arrived(broker).values())) == 25)
        assert process.stop() == 0
    found = arrived(broker)
    [(partition, messages)] = found.items()
    ordered = [each for each in messages if each.body]
    assert bodies(ordered) == [*range(24)]
    assert {each.partition_key for each in messages} == {"press-7"}
    assert not arrived(broker, "rejected", "plant")
    written = checkpoints.get_blob_client("localhost/raw/$default/checkpoint/2").get_blob_properties().metadata
    assert written["sequencenumber"] == "23"
    # Another process goes on there.
    with host(broker, storage, tmp_path) as process:
        process.wait_until_ready()
        publish(broker, 24)
        process.wait_for(lambda: sum(map(len, arrived(broker).values())) == 26)
        assert process.stop() == 0
    assert bodies([each for each in arrived(broker)[partition] if each.body]) == [*range(25)]


def test_it_goes_on_at_an_earlier_checkpoint_of_the_host_and_keeps_partitions(
    broker: RunningBroker, storage: str, checkpoints: ContainerClient, tmp_path: Path
) -> None:
    publish(broker, *range(4))
    offset = broker.inspect("plant", lambda entities: entities.hubs["raw"].partitions[2].events[1].offset)
    if not checkpoints.exists():
        checkpoints.create_container()
    # EH11: the extension before version 5 kept the case of the names.
    content = json.dumps({"Offset": str(offset), "SequenceNumber": 1})
    checkpoints.upload_blob("localhost/Raw/$Default/2", content)
    with host(broker, storage, tmp_path, partition=", partition: keep") as process:
        process.wait_until_ready()
        process.wait_for(lambda: sum(map(len, arrived(broker).values())) >= 2)
        assert process.stop() == 0
    assert {key: bodies(messages) for key, messages in arrived(broker).items()} == {"2": [2, 3]}
