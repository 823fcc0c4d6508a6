"""Tests of an application's queue and topic: `pip install busway-broker azure-servicebus pytest`, then `pytest`."""

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

pytestmark = pytest.mark.busway(config="Config.json")


@pytest.fixture
def client(busway_service_bus):
    with ServiceBusClient.from_connection_string(busway_service_bus, retry_backoff_factor=0.01) as client:
        yield client


def place_order(client, body):
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(body, application_properties={"priority": 5}))


def test_an_order_is_in_the_queue(client, busway_service_bus):
    place_order(client, "one pear")
    (order,) = busway_service_bus.messages("orders")
    assert (order["body"], order["application_properties"]) == ("one pear", {"priority": 5})


def test_an_order_that_nobody_completes_is_dead_lettered(client, busway_service_bus, busway_clock):
    place_order(client, "one pear")
    with client.get_queue_receiver("orders") as receiver:
        for _ in range(3):
            receiver.receive_messages()
            busway_clock.advance(timedelta(minutes=1))
        assert receiver.receive_messages(max_wait_time=0.1) == []
    (letter,) = busway_service_bus.messages("orders/$DeadLetterQueue")
    assert letter["dead_letter_reason"] == "MaxDeliveryCountExceeded"


def test_an_order_survives_a_busy_service(client, busway_service_bus, busway_faults):
    busway_faults.add("throttle", "orders", operations=["send"], times=1)
    place_order(client, "one pear")
    assert busway_service_bus.counts("orders").active == 1


def test_each_region_gets_the_price(client, busway_service_bus):
    with client.get_topic_sender("prices") as sender:
        sender.send_messages(ServiceBusMessage("pear: 2"))
    for region in ("eu", "us"):
        assert busway_service_bus.counts(f"prices/Subscriptions/{region}").active == 1
