"""The sockets and threads of a broker, and clients that misbehave."""

import socket
import time

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker

HEADER = b"AMQP\x00\x01\x00\x00"
CONFIG = NamespaceConfig(name="n", queues=(QueueConfig(name="q"),))


def connect(broker: RunningBroker, name: str = "west") -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port(name)), timeout=5)


def receive_all(peer: socket.socket) -> bytes:
    received = b""
    while part := peer.recv(65536):
        received += part
    return received


def test_a_running_broker_returns_its_counts_and_can_be_reset() -> None:
    with RunningBroker([CONFIG]) as broker:
        with (
            ServiceBusClient.from_connection_string(broker.connection_string("n")) as client,
            client.get_queue_sender("q") as sender,
        ):
            sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
        assert broker.counts("n")["q"].active == 2
        with connect(broker, "n") as peer:
            peer.sendall(HEADER)
            assert peer.recv(8) == HEADER
            broker.reset()
            assert b"shutting down" in receive_all(peer)
        assert broker.counts("n")["q"].active == 0


def test_a_stopped_broker_does_not_listen() -> None:
    with RunningBroker([CONFIG]) as broker:
        port = broker.port("n")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_the_broker_stops_at_once_with_clients_connected() -> None:
    with RunningBroker([CONFIG]) as broker:
        peers = [connect(broker, "n") for _ in range(20)]
        for peer in peers:
            peer.sendall(HEADER)
            assert peer.recv(8) == HEADER
        start = time.monotonic()
    assert time.monotonic() - start < 5
    for peer in peers:
        peer.close()
