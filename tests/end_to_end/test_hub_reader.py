"""A task with `reader: app`: events that Azure's host cannot pass to a function arrive, in the order of their keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub.amqp import AmqpAnnotatedMessage
from azure.storage.blob import ContainerClient

from shared.message.message import Message
from shared.stores.host_checkpoints import CONTAINER
from tests.site import Site

pytestmark = pytest.mark.long

ENTITIES = """
plant: {hubs: {Raw: {partition_count: 4}, rejected: {partition_count: 1}}}
office: {hubs: {raw: {partition_count: 4}}}
"""
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
def site(storage: str, tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, ENTITIES, TASK.replace(" PARTITION", ""), settings={"AzureWebJobsStorage": storage}) as site:
        yield site


@pytest.fixture
def checkpoints(storage: str) -> Iterator[ContainerClient]:
    with ContainerClient.from_connection_string(storage, CONTAINER) as container:
        if not container.exists():
            container.create_container()
        for name in container.list_blob_names():
            container.delete_blob(name)
        yield container


def publish(site: Site, *bodies: int, partition: str = "2", value: object = None) -> None:
    contents: list[dict[str, Any]] = [
        {"data_body": [b"%d" % body]} if value is None else {"value_body": value} for body in bodies
    ]
    events: list[Any] = [
        AmqpAnnotatedMessage(**content, **POISON[body % len(POISON)])
        for body, content in zip(bodies, contents, strict=True)
    ]
    site.publish_events("plant/raw", *events, partition_id=partition)


def arrived(site: Site, path: str = "office/raw") -> dict[str, list[Message]]:
    return {str(number): events for number, events in enumerate(site.events(path)) if events}


def bodies(messages: list[Message]) -> list[int]:
    return [int(message.body or b"") for message in messages]


def test_events_of_one_kafka_key_arrive_in_one_partition_and_in_order(site: Site, checkpoints: ContainerClient) -> None:
    with site.running_host() as process:
        for number in range(0, 24, 4):
            publish(site, *range(number, number + 4))
        publish(site, 0, value=[None, {"floor": 1}], partition="1")
        process.wait_for(lambda: sum(map(len, arrived(site).values())) == 25)
    found = arrived(site)
    [(partition, messages)] = found.items()
    ordered = [message for message in messages if message.body]
    assert bodies(ordered) == [*range(24)]
    assert {message.partition_key for message in messages} == {"press-7"}
    assert not arrived(site, "plant/rejected")
    written = checkpoints.get_blob_client("localhost/raw/$default/checkpoint/2").get_blob_properties().metadata
    assert written["sequencenumber"] == "23"
    # Another process goes on there.
    with site.running_host() as process:
        publish(site, 24)
        process.wait_for(lambda: sum(map(len, arrived(site).values())) == 26)
    assert bodies([message for message in arrived(site)[partition] if message.body]) == [*range(25)]


def test_it_goes_on_at_an_earlier_checkpoint_of_the_host_and_keeps_partitions(
    site: Site, checkpoints: ContainerClient
) -> None:
    publish(site, *range(4))
    offset = site.broker.inspect("plant", lambda entities: entities.hubs["raw"].partitions[2].events[1].offset)
    # EH11: the extension before version 5 kept the case of the names.
    content = json.dumps({"Offset": str(offset), "SequenceNumber": 1})
    checkpoints.upload_blob("localhost/Raw/$Default/2", content)
    site.configure(TASK.replace(" PARTITION", ", partition: keep"))
    with site.running_host() as process:
        process.wait_for(lambda: sum(map(len, arrived(site).values())) >= 2)
    assert {key: bodies(messages) for key, messages in arrived(site).items()} == {"2": [2, 3]}
