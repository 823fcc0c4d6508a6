"""Senders that follow a source, on two namespaces of the local broker, through the SDK."""

import itertools
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusQuotaExceededError

from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from busway_clients import EndpointWatch, FollowingSender
from busway_clients.endpoints.cache import EndpointCache
from busway_clients.endpoints.endpoint import Answer, Endpoint
from tests.clients.applications import Answering, connection_string
from tests.clients.endpoints.following import PinnableWatch, Register, endpoint, held, ids

pytest_plugins = "broker.tests.broker_of_a_module"

# The SDK leaves sockets of connections that broke, or links that were refused, to the garbage collector.


def test_sender_follows_the_source(register: Register, broker: RunningBroker) -> None:
    with register.sender() as sender:
        sender.send_messages(ServiceBusMessage("a"))
        register.point_to(endpoint("east"))
        sender.send_messages([ServiceBusMessage("b"), ServiceBusMessage("c")])
        assert sender.endpoint == endpoint("east")
        register.point_to(endpoint("west"))
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("d"))
        sender.send_messages(batch)
    assert held(broker) == [2, 2]


@pytest.mark.parametrize("wrong", [Endpoint("bus.example.org"), endpoint("east", 443)], ids=["unknown", "closed"])
def test_sender_keeps_its_link_if_the_other_cannot_be_opened(
    wrong: Any, register: Register, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = [0.0]
    with register.sender(monotonic=lambda: seconds[0]) as sender:
        sender.send_messages(ServiceBusMessage("a"))
        register.point_to(wrong)
        sender.send_messages(ServiceBusMessage("b"))
        sender.send_messages(ServiceBusMessage("c"))
        assert register.connected == [endpoint("west"), wrong]
        assert f"{wrong} cannot be opened" in caplog.text
        seconds[0] += 5
        register.point_to(wrong)
        sender.send_messages(ServiceBusMessage("d"))
        assert register.connected == [endpoint("west"), wrong, wrong]
        register.point_to(wrong, endpoint("east"))
        sender.send_messages(ServiceBusMessage("e"))
    assert held(broker) == [4, 1]


def test_invalid_endpoint_is_reported_and_the_sender_stays(
    register: Register, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    page = Answering(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")
    with socket.create_server(("127.0.0.1", 0)) as silent, page as website:
        places = {"silent": connection_string(silent), "website": website}

        def connect(to: Any) -> Any:
            place = places.get(to.namespace.partition(".")[0])
            return ServiceBusClient.from_connection_string(place, retry_total=0) if place else register.connect(to)

        sender = FollowingSender(
            register.watch(), connect, lambda client: client.get_queue_sender("orders"), open_seconds=1.5
        )
        sent = 1
        with sender:
            sender.send_messages(ServiceBusMessage("a"))
            for name in places:
                register.point_to(endpoint(name))
                # Sends go on meanwhile.
                while f"{endpoint(name)} cannot be opened" not in caplog.text:
                    sender.send_messages(ServiceBusMessage("b"))
                    sent += 1
    assert sent > 5
    assert held(broker) == [sent, 0]


def test_failed_send_is_retried_at_the_other_site(register: Register, broker: RunningBroker) -> None:
    with register.sender() as sender:
        sender.send_messages(ServiceBusMessage("a"))
        register.point_to(endpoint("west"))
        broker.faults("west").go_down()
        with pytest.raises((ServiceBusError, OSError)):
            sender.send_messages(ServiceBusMessage("not accepted"), timeout=1)
        # The operator switches while a send is running: the source is read again when it has failed.
        register.watched.pin()
        register.point_to(endpoint("east"))
        message = ServiceBusMessage("b")
        sender.send_messages(message, timeout=1)
        assert message.message_id is not None
        assert sender.endpoint == endpoint("east")
    broker.faults("west").come_up()
    assert held(broker) == [1, 1]


def test_unacknowledged_message_has_the_same_id_at_the_other_site(register: Register, broker: RunningBroker) -> None:
    with register.sender() as sender:
        sender.send_messages(ServiceBusMessage("a", message_id="a"))
        register.watched.pin()
        register.point_to(endpoint("east"))
        strike = Fault(
            effect=Effect.DROP_CONNECTION, entity="orders", operations=frozenset((Operation.SEND,)), takes_effect=True
        )
        broker.faults("west").add(strike)
        sender.send_messages(ServiceBusMessage("b"), timeout=2)
    west, east = ids(broker, "west"), ids(broker, "east")
    assert len(east) == 1
    assert set(west[1:]) == set(east)


def test_error_of_the_entity_does_not_move_the_sender(register: Register, broker: RunningBroker) -> None:
    with register.sender() as sender:
        sender.send_messages(ServiceBusMessage("a"))
        broker.faults("west").add(Fault(effect=Effect.FILL, operations=frozenset((Operation.SEND,))))
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(ServiceBusMessage("b"))
    assert register.watched.consultations == 0


def test_sends_of_many_threads_all_arrive_while_the_sender_moves(register: Register, broker: RunningBroker) -> None:
    with register.sender() as sender, ThreadPoolExecutor(4) as threads:

        def send(number: int) -> None:
            if number == 20:
                register.point_to(endpoint("east"))
            sender.send_messages(ServiceBusMessage("x", message_id=str(number)))

        list(threads.map(send, range(40)))
    west, east = held(broker)
    assert west + east == 40
    assert west >= 17
    assert east >= 17


def test_sender_whose_first_namespace_is_dead_moves_before_the_source_is_due(
    register: Register, broker: RunningBroker
) -> None:
    register.watched = PinnableWatch(register.watch())
    register.watched.pin()
    broker.faults("west").go_down()
    register.point_to(endpoint("east"))
    with FollowingSender(
        register.watched, register.connect, lambda client: client.get_queue_sender("orders")
    ) as sender:
        sender.send_messages(ServiceBusMessage("a"))
    broker.faults("west").come_up()
    assert held(broker) == [0, 1]


def test_sends_to_a_healthy_namespace_do_not_wait_for_a_source_that_hangs(
    register: Register, broker: RunningBroker
) -> None:
    reads, released = [0], threading.Event()

    class Hanging:
        def read(self) -> Answer:
            reads[0] += 1
            assert reads[0] == 1 or released.wait(30)
            return register.read()

    cache = EndpointCache(shortest_seconds=0, longest_seconds=0)
    watch = EndpointWatch(Hanging(), cache=cache, monotonic=itertools.count(step=2).__next__)
    with FollowingSender(watch, register.connect, lambda client: client.get_queue_sender("orders")) as sender:
        sender.send_messages(ServiceBusMessage("first"))
        start = time.monotonic()
        for _ in range(10):
            sender.send_messages(ServiceBusMessage("next"))
        assert time.monotonic() - start < 5
    assert reads[0] == 2
    released.set()
    assert held(broker) == [11, 0]
