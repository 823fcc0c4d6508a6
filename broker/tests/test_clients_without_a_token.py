"""
Peers without a token, on real sockets against a broker in a process of its own: what it holds for them is bounded.

The memory of the process is measured while all connections of an attack are open. An honest client works meanwhile.
"""

import contextlib
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from broker.tests.broker_process import BrokerProcess
from broker.tests.client_frames import ClientFrames
from shared.amqp import performatives
from shared.amqp.codec import encode
from shared.amqp.fields import compose_list
from shared.amqp.frames import AMQP_HEADER, SASL, SASL_HEADER, compose
from shared.amqp.values import Value, map_, string

pytestmark = pytest.mark.long

QUEUE = "orders"
MEGABYTE = 1024 * 1024
# Of all connections together, and what Python needs for it.
MOST_GROWTH = 200 * MEGABYTE

CLIENT = ClientFrames(window=2**31, channel_max=4999)
PREAMBLE = CLIENT.preamble()


def attach(handle: int, *, receives: bool = False, node: str = "$cbs", properties: Value | None = None) -> bytes:
    return CLIENT.attach(handle, receives=receives, address=node, properties=properties)


def transfer(handle: int, number: int, payload: bytes, *, more: bool = True) -> bytes:
    return CLIENT.transfer(handle, number, payload, more=more)


def request(message_id: str) -> bytes:
    """Return a request to $cbs with an invalid token, which is answered with its message id."""
    properties = compose_list(0x73, [encode(string(message_id))])
    application = b"\x00\x53\x74" + encode(
        map_([(string("operation"), string("put-token")), (string("name"), string("x"))])
    )
    return properties + application + b"\x00\x53\x77" + encode(string("no token"))


def incomplete_requests() -> Iterator[bytes]:
    for handle in range(500):
        yield attach(handle) + transfer(handle, handle, bytes(60_000))


def sessions() -> Iterator[bytes]:
    for channel in range(1, 5000):
        yield CLIENT.begin(channel)


def links_with_large_properties() -> Iterator[bytes]:
    large = map_([(string(str(number)), string("")) for number in range(6000)])
    for handle in range(60):
        yield attach(handle, properties=large)


def refused_links_with_large_properties() -> Iterator[bytes]:
    large = map_([(string("x"), string("x" * 60_000))])
    for handle in range(2000):
        yield attach(handle, node="missing", properties=large)


def answers_that_nobody_fetches() -> Iterator[bytes]:
    yield attach(0, receives=True) + attach(1)
    for number in range(2000):
        yield transfer(1, number, request("x" * 50_000), more=False)


def incomplete_hub_requests() -> Iterator[bytes]:
    for handle in range(64):
        yield attach(handle, node="$management")
        for _ in range(15):
            yield transfer(handle, handle, bytes(60_000))


ATTACKS: dict[str, tuple[int, Callable[[], Iterator[bytes]]]] = {
    "incomplete requests": (20, incomplete_requests),
    "sessions": (20, sessions),
    "links with large properties": (1, links_with_large_properties),
    "refused links with large properties": (10, refused_links_with_large_properties),
    "answers that nobody fetches": (10, answers_that_nobody_fetches),
    "incomplete requests to $management": (20, incomplete_hub_requests),
}


class Broker(BrokerProcess):
    """A namespace that requires tokens, and one that does not."""

    def __init__(self, folder: Path) -> None:
        queues = [{"Name": QUEUE}]
        keys = [{"Name": "owner", "Key": "a-key-of-this-test", "Rights": ["Manage"]}]
        keyed = {"Name": "keyed", "Queues": queues, "SharedAccessKeys": keys}
        super().__init__(folder, [keyed, {"Name": "open", "Queues": queues}])

    def note_memory(self) -> None:
        """Measure growth from now on."""
        self._before = self._memory

    @property
    def growth(self) -> int:
        """The resident bytes that the process has more than at its start."""
        return self._memory - self._before

    @property
    def _memory(self) -> int:
        status = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(status.split()[1]) * resource.getpagesize()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("broker")).start()
    for name in running.strings:
        round_trip(running, name)
    running.note_memory()
    yield running
    running.end(signal.SIGTERM)


def round_trip(broker: Broker, name: str) -> None:
    with (
        broker.client(name) as client,
        client.get_queue_sender(QUEUE) as sender,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        sender.send_messages(ServiceBusMessage(b"x" * 100_000))
        (message,) = receiver.receive_messages(1, max_wait_time=10)
        receiver.complete_message(message)


def send_while_read(peer: socket.socket, parts: Iterator[bytes]) -> None:
    """Send until the broker closes the connection or reads nothing more; what it answers is read and dropped."""
    peer.settimeout(3)
    with contextlib.suppress(OSError):
        for part in parts:
            peer.sendall(part)
            while select.select([peer], [], [], 0)[0]:
                if not peer.recv(65536):
                    return


def closed_with(peer: socket.socket) -> bytes:
    """Return what is left to read from a connection that the broker has closed."""
    received = b""
    peer.settimeout(10)
    with contextlib.suppress(ConnectionError):
        while part := peer.recv(65536):
            received += part
    return received


@pytest.mark.parametrize("name", ["keyed", "open"])
@pytest.mark.parametrize(("connections", "attack"), ATTACKS.values(), ids=ATTACKS)
def test_memory_for_peers_without_a_token_is_bounded(broker: Broker, name: str, connections: int, attack: Any) -> None:
    with contextlib.ExitStack() as peers:
        for _ in range(connections):
            peer = peers.enter_context(socket.create_connection(broker.address(name), timeout=5))
            peer.sendall(PREAMBLE)
            send_while_read(peer, attack())
        assert broker.growth < MOST_GROWTH
        round_trip(broker, name)


@pytest.mark.parametrize("parts", [1, 4000])
def test_unfinished_messages_of_websockets_count_as_held(broker: Broker, parts: int) -> None:
    head = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    head += b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    head += b"Sec-WebSocket-Protocol: amqp\r\n\r\n"
    size = 16 * MEGABYTE // parts - 1000

    def unfinished() -> Iterator[bytes]:
        for number in range(parts):
            # Not the last part, of a binary message or its continuation, masked with zeros.
            yield bytes((0 if number else 2, 0x80 | 127)) + size.to_bytes(8) + bytes(4)
            yield from (bytes(min(65536, size - start)) for start in range(0, size, 65536))

    def opened(peers: contextlib.ExitStack) -> socket.socket:
        peer = peers.enter_context(socket.create_connection(broker.address("keyed"), timeout=5))
        peer.sendall(head)
        assert b" 101 " in peer.recv(4096)
        return peer

    with contextlib.ExitStack() as peers:
        opened(peers)
        before = broker.growth
        for _ in range(20):
            send_while_read(opened(peers), unfinished())
        assert broker.growth - before < 20 * MEGABYTE
        round_trip(broker, "keyed")


@pytest.mark.parametrize("attack", [incomplete_requests, sessions, answers_that_nobody_fetches])
def test_peer_without_a_token_is_closed_with_the_reason(broker: Broker, attack: Any) -> None:
    with socket.create_connection(broker.address("keyed"), timeout=5) as peer:
        received = b""
        peer.sendall(PREAMBLE)
        with contextlib.suppress(OSError):
            for part in attack():
                peer.sendall(part)
                while select.select([peer], [], [], 0)[0] and (some := peer.recv(65536)):
                    received += some
        received += closed_with(peer)
        assert b"amqp:resource-limit-exceeded" in received
        assert b"expected at most 262144 before a valid token or key" in received


@pytest.mark.parametrize(
    "protocol",
    [AMQP_HEADER.encode() + CLIENT.opening, AMQP_HEADER.encode(), SASL_HEADER.encode()],
    ids=["after the open", "before the open", "SASL"],
)
def test_incomplete_frames_of_many_connections_are_bounded(broker: Broker, protocol: bytes) -> None:
    half = struct.pack(">IBBH", 65_000, 2, 0, 0) + bytes(60_000)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(broker.address("keyed"), timeout=5)) for _ in range(2000)]
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.sendall(protocol + half)
        round_trip(broker, "keyed")
        assert broker.growth < MOST_GROWTH


def test_frames_that_were_read_are_released(broker: Broker) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection(broker.address("keyed"), timeout=5)) for _ in range(1500)]
        for peer in peers:
            # For a session that does not exist, so that they are ignored.
            peer.sendall(PREAMBLE + compose(9, performatives.end(), bytes(60_000)) * 2)
        round_trip(broker, "keyed")
        assert broker.growth < MOST_GROWTH


def test_large_frames_before_the_open_are_refused(broker: Broker) -> None:
    for protocol, kind in ((AMQP_HEADER, 0), (SASL_HEADER, SASL)):
        with socket.create_connection(broker.address("keyed"), timeout=5) as peer:
            peer.sendall(protocol.encode() + struct.pack(">IBBH", 8193, 2, kind, 0))
            assert b"expected at most 8192" in closed_with(peer) or kind == SASL


def test_token_of_more_than_64_kb_is_rejected(broker: Broker) -> None:
    with socket.create_connection(broker.address("open"), timeout=5) as peer:
        peer.sendall(PREAMBLE + attach(0))
        for _ in range(2):
            peer.sendall(transfer(0, 0, bytes(60_000)))
        peer.sendall(transfer(0, 0, b"", more=False))
        received = b""
        deadline = time.monotonic() + 10
        while b"amqp:link:message-size-exceeded" not in received and time.monotonic() < deadline:
            received += peer.recv(65536)
        assert b"(65536 bytes) currently allowed on the link" in received
