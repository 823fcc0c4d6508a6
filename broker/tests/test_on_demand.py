"""Entities that are created at their first use."""

import contextlib
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthorizationError, ServiceBusError

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig, OnDemand, Right, SharedAccessKey
from busway_broker.thread import RunningBroker

LISTENER = SharedAccessKey(name="listener", key="bGlzdGVu", rights=frozenset((Right.LISTEN,)))


NAMESPACES = [
    NamespaceConfig(name="west", on_demand=OnDemand.QUEUES),
    NamespaceConfig(name="hubs", on_demand=OnDemand.HUBS),
    NamespaceConfig(name="closed", on_demand=OnDemand.QUEUES, shared_access_keys=(LISTENER,)),
]


def test_a_sender_creates_a_queue_with_the_name_as_it_was_given(
    client: ServiceBusClient, broker: RunningBroker
) -> None:
    with client.get_queue_sender("Orders/New") as sender:
        sender.send_messages(ServiceBusMessage("first"))
    with client.get_queue_receiver("orders/new") as receiver:
        assert [str(message) for message in receiver.receive_messages(max_wait_time=5)] == ["first"]
    assert "Orders/New" in broker.counts("west")


def test_a_request_creates_what_it_sends_to(broker: RunningBroker) -> None:
    with RunningAdmin(broker) as admin:
        for name, path in (("west", "messages?path=From/Curl"), ("hubs", "events?hub=from-curl")):
            request = Request(  # noqa: S310 - the broker's own address
                f"{admin.address(name)}/$busway/{path}", b'{"body": "x"}', {"Content-Type": "application/json"}
            )
            with urlopen(request, timeout=60) as answer:  # noqa: S310 - likewise
                assert answer.status == 201
    assert broker.counts("west")["From/Curl"].active == 1
    partitions = broker.inspect("hubs", lambda namespace: namespace.hub("from-curl").partitions)
    assert sum(partition.next_sequence_number for partition in partitions) == 1


def test_a_receiver_creates_topic_and_subscription(client: ServiceBusClient) -> None:
    with (
        client.get_subscription_receiver("prices", "eu") as receiver,
        client.get_subscription_receiver("prices", "us", sub_queue="deadletter") as dead,
        client.get_topic_sender("prices") as sender,
    ):
        assert dead.peek_messages() == []
        sender.send_messages(ServiceBusMessage("1"))
        assert [str(message) for message in receiver.receive_messages(max_wait_time=5)] == ["1"]


def test_a_session_receiver_creates_an_entity_that_requires_sessions(client: ServiceBusClient) -> None:
    with client.get_queue_receiver("jobs", session_id="a") as receiver, client.get_queue_sender("jobs") as sender:
        sender.send_messages(ServiceBusMessage("1", session_id="a"))
        assert len(receiver.receive_messages(max_wait_time=5)) == 1
        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("2"))


def test_a_queue_does_not_become_a_topic(client: ServiceBusClient) -> None:
    with client.get_queue_sender("letters") as sender:
        sender.send_messages(ServiceBusMessage("1"))
    with pytest.raises(ServiceBusError, match="letters"), client.get_subscription_receiver("letters", "all"):
        pass


@pytest.mark.parametrize("name", ["$secret", "a//b", "a" * 261, "quéue", "a b"])
def test_an_invalid_name_creates_nothing(client: ServiceBusClient, broker: RunningBroker, name: str) -> None:
    before = broker.counts("west").keys()
    with pytest.raises(ServiceBusError), client.get_queue_sender(name):
        pass
    assert broker.counts("west").keys() == before


def test_a_client_without_the_right_creates_nothing(broker: RunningBroker) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("closed"), retry_total=0) as client,
        pytest.raises((ServiceBusAuthorizationError, ServiceBusError)),
        client.get_queue_sender("orders"),
    ):
        pass
    assert broker.counts("closed") == {}


def test_asking_for_a_hub_creates_it(broker: RunningBroker) -> None:
    string = broker.connection_string("hubs")
    with EventHubProducerClient.from_connection_string(string, eventhub_name="Telemetry") as producer:
        assert producer.get_partition_ids() == ["0", "1", "2", "3"]
        assert producer.get_eventhub_properties()["eventhub_name"] == "Telemetry"
    with EventHubProducerClient.from_connection_string(string, eventhub_name="other") as producer:
        producer.send_event(EventData("x"), partition_id="3")
        assert producer.get_partition_properties("3")["last_enqueued_sequence_number"] == 0


def test_created_entities_and_their_messages_survive_with_stored_state(tmp_path: Path) -> None:
    with RunningBroker(NAMESPACES[:2], data=tmp_path) as running:
        with (
            ServiceBusClient.from_connection_string(running.connection_string("west")) as client,
            contextlib.closing(client.get_queue_sender("orders")) as sender,
        ):
            sender.send_messages(ServiceBusMessage("1"))
        with EventHubProducerClient.from_connection_string(
            running.connection_string("hubs"), eventhub_name="telemetry"
        ) as producer:
            producer.send_event(EventData("x"), partition_id="1")
    with RunningBroker(NAMESPACES[:2], data=tmp_path) as running:
        assert running.counts("west")["orders"].active == 1
        events = running.inspect("hubs", lambda namespace: len(namespace.hub("telemetry").partition("1").events))
        assert events == 1
