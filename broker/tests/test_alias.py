"""An alias of two paired namespaces: a failover moves the name, the entities are there, the messages are not."""

import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import HubConfig, NamespaceConfig, Pairing, QueueConfig
from busway_broker.config_file import load_config
from busway_broker.thread import RunningBroker
from shared.errors import ConfigError

# The SDK leaves the socket of a connection that breaks to the garbage collector.


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    west = NamespaceConfig(
        name="west",
        queues=(QueueConfig(name="orders"),),
        hubs=(HubConfig(name="events"),),
        pairing=Pairing("site", "east"),
    )
    with RunningBroker([west, NamespaceConfig(name="east")]) as running:
        yield running


def send(broker: RunningBroker, name: str, *bodies: str) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string(name)) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages([ServiceBusMessage(body) for body in bodies])


def received(broker: RunningBroker, name: str) -> list[tuple[str, int | None]]:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string(name)) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        found = receiver.receive_messages(10, max_wait_time=1)
        for message in found:
            receiver.complete_message(message)
        return [(str(message), message.sequence_number) for message in found]


def test_after_a_failover_the_alias_leads_to_the_same_entities_without_messages(broker: RunningBroker) -> None:
    send(broker, "site", "one", "two")
    assert broker.faults("east").promote() == "site"
    assert received(broker, "site") == []
    send(broker, "site", "three")
    assert received(broker, "site") == [("three", 1)], "the numbers begin again"
    assert received(broker, "west") == [("one", 1), ("two", 2)], "what was there is still there, by its own name"
    assert broker.faults("east").promote() is None, "the failover has ended the pairing"


def test_a_client_stays_at_the_old_primary_until_its_connection_ends(broker: RunningBroker) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("site"), retry_total=1) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        broker.faults("east").promote()
        sender.send_messages(ServiceBusMessage("still at west"))
        broker.faults("west").go_down()
        sender.send_messages(ServiceBusMessage("at east"))
    assert [text for text, _ in received(broker, "site")] == ["at east"]


def test_an_alias_of_a_namespace_that_is_down_accepts_nothing_before_the_failover(broker: RunningBroker) -> None:
    broker.faults("west").go_down()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", broker.port("site")), timeout=5)
    broker.faults("east").promote()
    send(broker, "site", "kept")
    assert received(broker, "east") == [("kept", 1)]


def test_a_checkpoint_of_the_old_hub_leads_beyond_the_end_of_the_new_one(broker: RunningBroker) -> None:
    with EventHubProducerClient.from_connection_string(
        broker.connection_string("site"), eventhub_name="events"
    ) as producer:
        producer.send_batch([EventData(str(number)) for number in range(5)], partition_id="0")
    broker.faults("east").promote()
    with EventHubConsumerClient.from_connection_string(
        broker.connection_string("site"), "$Default", eventhub_name="events"
    ) as consumer:
        properties = consumer.get_partition_properties("0")
    assert properties["is_empty"]
    assert properties["last_enqueued_sequence_number"] == -1


def test_the_administration_promotes_the_secondary_namespace(broker: RunningBroker) -> None:
    with RunningAdmin(broker) as admin:
        request = urllib.request.Request(  # noqa: S310 - the address of this test's own server
            f"{admin.address('east')}/$busway/failover", data=b"", headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - likewise
            assert json.load(answer) == {"alias": "site"}


@pytest.mark.parametrize(
    ("pairing", "problem"),
    [
        ({"Alias": "site", "Secondary": "north"}, "Pairing.Secondary is 'north'"),
        ({"Alias": "site", "Secondary": "west"}, "Pairing.Secondary is 'west'"),
        ({"Alias": "east", "Secondary": "east"}, "Pairing.Alias is 'east'"),
        ({"Secondary": "east"}, "Pairing.Alias is ''"),
        ({"Alias": "site", "Secondary": "east", "Mode": "auto"}, "Mode"),
    ],
)
def test_a_wrong_pairing_is_a_problem_of_the_file(tmp_path: Path, pairing: dict[str, str], problem: str) -> None:
    file = tmp_path / "Config.json"
    namespaces = [{"Name": "west", "Queues": [{"Name": "orders"}], "Pairing": pairing}, {"Name": "east"}]
    file.write_text(json.dumps({"UserConfig": {"Namespaces": namespaces}}), encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        load_config([file])
