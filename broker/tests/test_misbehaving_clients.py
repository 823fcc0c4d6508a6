"""Clients that violate the protocol, on real sockets: they get an error, and other clients are not affected."""

import contextlib
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.tests.client_frames import CLOSED, DETACHED, ENDED, ClientFrames, codes, error_of, heard_in
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.protocol.link_session import OUTPUT_LIMIT
from busway_broker.socket_peer import SocketPeer
from busway_broker.thread import RunningBroker
from shared.amqp import performatives, sasl
from shared.amqp.codec import plain
from shared.amqp.fields import compose_list, long_number_field, number_field, symbol_field, text_field
from shared.amqp.frames import AMQP_HEADER, SASL, SASL_HEADER, compose
from shared.amqp.sections import data

type Connect = Callable[[], socket.socket]

CLIENT = ClientFrames(window=2**31)
PREAMBLE = CLIENT.preamble()
QUEUE, OTHER, LARGE = "q", "other", "large"


NAMESPACES = [NamespaceConfig(name="n", queues=tuple(QueueConfig(name=name) for name in (QUEUE, OTHER, LARGE)))]


@pytest.fixture(autouse=True)
def _other_clients_are_not_affected(broker: RunningBroker) -> Iterator[None]:
    """After every test a well-behaved client sends and receives, on a connection that was there before."""
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("n"), retry_total=0) as client,
        client.get_queue_sender(QUEUE) as sender,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        yield
        sender.send_messages(ServiceBusMessage("still here"))
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.complete_message(message)
        assert str(message) == "still here"


@pytest.fixture
def connect(broker: RunningBroker) -> Iterator[Connect]:
    with contextlib.ExitStack() as peers:
        yield lambda: peers.enter_context(socket.create_connection(("127.0.0.1", broker.port("n")), timeout=5))


def attach(handle: int, *, receives: bool, address: str = QUEUE) -> bytes:
    return CLIENT.attach(handle, receives=receives, address=address)


def until_closed(peer: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := peer.recv(65536):
            received += part
    return received


def heard_until(peer: socket.socket, code: int) -> list[Any]:
    received = b""
    while code not in codes(heard_in(received)):
        part = peer.recv(65536)
        assert part, "the broker has hung up"
        received += part
    return [each for each in heard_in(received) if isinstance(each, tuple)]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"AMQP\x01\x00\x09\x01",
        b"AMQP\x02\x01\x00\x00" + bytes(8),
        bytes(64),
        b"\xff" * 64,
    ],
    ids=["tls", "ssh", "amqp 0-9-1", "amqp over tls", "zeros", "ones"],
)
def test_garbage_before_the_header_is_answered_with_the_header_that_is_spoken(connect: Connect, garbage: bytes) -> None:
    peer = connect()
    peer.sendall(garbage)
    assert until_closed(peer) == AMQP_HEADER.encode()


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\n\r\n", b"426"),
        (b"GARBAGE\r\n\r\n", b"400"),
    ],
)
def test_a_request_of_http_is_answered_in_http(connect: Connect, request_text: bytes, status: bytes) -> None:
    peer = connect()
    peer.sendall(request_text)
    assert until_closed(peer).partition(b" ")[2].startswith(status)


CONNECTION_ERRORS = {
    "a frame above the agreed size": (struct.pack(">IBBH", 65537, 2, 0, 0), "amqp:connection:framing-error"),
    "a frame of two gigabytes": (struct.pack(">IBBH", 2**31, 2, 0, 0), "amqp:connection:framing-error"),
    "a frame shorter than its header": (struct.pack(">IBBH", 7, 2, 0, 0), "amqp:connection:framing-error"),
    "a data offset past the frame": (struct.pack(">IBBH", 8, 3, 0, 0), "amqp:connection:framing-error"),
    "a data offset within the header": (struct.pack(">IBBH", 8, 1, 0, 0), "amqp:connection:framing-error"),
    "an unknown frame type": (struct.pack(">IBBH", 8, 2, 9, 0), "amqp:connection:framing-error"),
    "a SASL frame after SASL": (
        compose(0, compose_list(sasl.INIT, [symbol_field("PLAIN")]), kind=SASL),
        "amqp:connection:framing-error",
    ),
    "no performative": (compose(0, b"garbage"), "amqp:decode-error"),
    "half a performative": (compose(0, attach(1, receives=True)[8:-9]), "amqp:decode-error"),
    "a list that is larger than its frame": (compose(0, b"\x00\x53\x12\xc0\xff\x03"), "amqp:decode-error"),
    "a million fields in ten bytes": (
        compose(0, b"\x00\x53\x12\xd0\x00\x00\x00\x06\x00\x0f\x42\x40"),
        "amqp:decode-error",
    ),
    "nesting without end": (
        compose(0, b"\x00\x53\x12" + b"\xd0\x00\x00\xff\x00\x00\x00\x00\x01" * 500),
        "amqp:decode-error",
    ),
    "a performative that does not exist": (compose(0, compose_list(0x77, [])), "amqp:not-allowed"),
    "an attach with a number for a name": (
        compose(0, compose_list(performatives.ATTACH, [number_field(1), number_field(1), b"\x41"])),
        "amqp:decode-error",
    ),
    "an attach with a settle mode that does not exist": (
        compose(0, compose_list(performatives.ATTACH, [text_field("l"), number_field(1), b"\x41", number_field(256)])),
        "amqp:decode-error",
    ),
    "an attach with a handle of 64 bits": (
        compose(0, compose_list(performatives.ATTACH, [text_field("l"), long_number_field(2**40), b"\x41"])),
        "amqp:decode-error",
    ),
    "a transfer without fields": (compose(0, b"\x00\x53\x14\x45"), "amqp:decode-error"),
    "a second open": (CLIENT.opening, "amqp:not-allowed"),
    "a session that has begun already": (CLIENT.begin(), "amqp:not-allowed"),
    "a channel that is too high": (
        compose(9999, compose_list(performatives.BEGIN, [b"\x40", number_field(0), *[number_field(9)] * 2])),
        "amqp:not-allowed",
    ),
    "a transfer on a channel without a session": (CLIENT.transfer(0, 0, b"", channel=7), "amqp:not-allowed"),
}


@pytest.mark.parametrize(("sent", "expected"), CONNECTION_ERRORS.values(), ids=CONNECTION_ERRORS)
def test_what_breaks_the_connection_closes_it_with_the_condition_of_the_specification(
    connect: Connect, sent: bytes, expected: str
) -> None:
    peer = connect()
    peer.sendall(PREAMBLE + sent)
    assert error_of(heard_in(until_closed(peer)), CLOSED) == expected


SESSION_ERRORS = {
    "a transfer on a handle without a link": (CLIENT.transfer(3, 0, b""), "amqp:session:unattached-handle"),
    "a flow for a handle without a link": (CLIENT.flow(3, 5), "amqp:session:unattached-handle"),
    "a handle that is in use": (
        attach(1, receives=True) + attach(1, receives=False),
        "amqp:session:handle-in-use",
    ),
    "a transfer on a link that receives": (attach(1, receives=True) + CLIENT.transfer(1, 0, b""), "amqp:not-allowed"),
}


@pytest.mark.parametrize(("sent", "expected"), SESSION_ERRORS.values(), ids=SESSION_ERRORS)
def test_what_breaks_a_session_ends_it_and_leaves_the_connection(connect: Connect, sent: bytes, expected: str) -> None:
    peer = connect()
    peer.sendall(PREAMBLE + sent)
    assert error_of(heard_until(peer, ENDED), ENDED) == expected
    peer.sendall(compose(0, performatives.end()) + CLIENT.begin())
    heard_until(peer, performatives.BEGIN)


def test_a_delivery_without_an_id_detaches_its_link_and_leaves_the_session(connect: Connect) -> None:
    peer = connect()
    nameless = compose(0, compose_list(performatives.TRANSFER, [number_field(1)]), data(b"x"))
    peer.sendall(PREAMBLE + attach(1, receives=False) + nameless + attach(2, receives=False))
    heard = heard_until(peer, DETACHED)
    assert error_of(heard, DETACHED) == "amqp:invalid-field"


@pytest.mark.parametrize(
    "message",
    [b"", b"garbage", b"\x00\x53\x75", b"\x00\x53\x75\xb0\xff\xff\xff\xff", b"\x00\x53\x73\xc0\x01\x05"],
    ids=["nothing", "noise", "a section without content", "a body that is cut", "a list that is cut"],
)
def test_an_invalid_message_is_rejected_and_the_link_stays_open(
    broker: RunningBroker, connect: Connect, message: bytes
) -> None:
    peer = connect()
    before = broker.counts("n")[OTHER].active
    link = attach(1, receives=False, address=OTHER)
    peer.sendall(PREAMBLE + link + CLIENT.transfer(1, 0, message) + CLIENT.transfer(1, 1, data(b"fine")))
    heard = heard_until(peer, performatives.DISPOSITION)
    while codes(heard).count(performatives.DISPOSITION) < 2:
        heard += heard_until(peer, performatives.DISPOSITION)
    states = [fields[4].payload for _, code, fields, _ in heard if code == performatives.DISPOSITION]
    assert states[1].descriptor.payload == performatives.ACCEPTED
    # A message without any section is let through, as the service does.
    accepted = 2 if message == b"" else 1
    assert states[0].descriptor.payload == (performatives.ACCEPTED if message == b"" else performatives.REJECTED)
    assert broker.counts("n")[OTHER].active == before + accepted


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(PREAMBLE) + 200), st.booleans())
def test_frames_may_be_cut_anywhere(connect: Connect, cut: int, resets: bool) -> None:
    links = attach(1, receives=False) + CLIENT.transfer(1, 0, data(b"x" * 100)) + attach(2, receives=True)
    peer = connect()
    peer.sendall((PREAMBLE + links)[:cut])
    if resets:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def test_a_link_that_never_ends_its_message_is_cut_short(connect: Connect) -> None:
    peer = connect()
    part = bytes(60_000)
    peer.sendall(PREAMBLE + attach(1, receives=False))
    for _ in range(100):
        peer.sendall(CLIENT.transfer(1, 0, part, more=True))
    peer.sendall(CLIENT.transfer(1, 0, part))
    heard = heard_until(peer, performatives.DETACH)
    (error,) = [fields[2] for _, code, fields, _ in heard if code == performatives.DETACH]
    assert "amqp:link:message-size-exceeded" in str(plain(error))


def largest_backlog(broker: RunningBroker) -> int:
    """Return the most bytes that wait for one peer: in its output and in its transport."""

    def look(_: object) -> int:
        (listener,) = broker._server._listeners.values()
        peers = [peer for peer in listener.peers if isinstance(peer, SocketPeer)]
        return max(
            peer._connection._output_size + peer._transport.get_write_buffer_size()
            for peer in peers
            if peer._transport is not None
        )

    return broker.inspect("n", look)


def test_what_waits_for_a_client_that_stops_reading_is_bounded(broker: RunningBroker, connect: Connect) -> None:
    count, size = 400, 100_000
    with (
        ServiceBusClient.from_connection_string(broker.connection_string("n")) as client,
        client.get_queue_sender(LARGE) as sender,
    ):
        for _ in range(count // 2):
            sender.send_messages([ServiceBusMessage(bytes(size)), ServiceBusMessage(bytes(size))])
    peer = connect()
    peer.sendall(PREAMBLE + attach(1, receives=True, address=LARGE) + CLIENT.flow(1, count))
    heard_until(peer, performatives.ATTACH)
    backlogs = []
    for _ in range(20):
        time.sleep(0.02)
        backlogs.append(largest_backlog(broker))
    # One message may go over the limit.
    assert 0 < max(backlogs) <= OUTPUT_LIMIT + 2 * size
    # When it reads again it gets the rest.
    received = 0
    while received < count * size:
        part = peer.recv(1 << 20)
        assert part, f"the broker has hung up after {received} bytes"
        received += len(part)


def test_a_client_that_only_asks_and_never_reads_is_not_read_from_any_more(
    broker: RunningBroker, connect: Connect
) -> None:
    peer = connect()
    peer.sendall(PREAMBLE + attach(1, receives=True))
    peer.setblocking(False)
    questions = CLIENT.flow(1, 0, echo=True) * 1000
    rest = b""
    sent = 0
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            rest = rest or questions
            count = peer.send(rest)
            rest = rest[count:]
            sent += count
        except BlockingIOError:
            if not select.select([], [peer], [], 0.5)[1]:
                break
    else:
        pytest.fail(f"the broker took {sent} bytes from a client that reads no answer")
    assert largest_backlog(broker) <= 2 * OUTPUT_LIMIT


def test_thousands_of_half_open_connections_leave_room_for_others(broker: RunningBroker) -> None:
    # Both ends of each are in this process.
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(10_000, (soft - 500) // 2)
    with contextlib.ExitStack() as peers:
        start = time.monotonic()
        for number in range(count):
            peer = peers.enter_context(socket.create_connection(("127.0.0.1", broker.port("n")), timeout=10))
            peer.sendall(SASL_HEADER.encode()[: number % 9])
        with (
            ServiceBusClient.from_connection_string(broker.connection_string("n"), retry_total=0) as client,
            client.get_queue_sender(OTHER) as sender,
        ):
            sender.send_messages(ServiceBusMessage("in time"))
        assert time.monotonic() - start < 60
    deadline = time.monotonic() + 30
    while _connections(broker) > 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _connections(broker) <= 2


def _connections(broker: RunningBroker) -> int:
    return broker.inspect("n", lambda _: sum(len(listener.peers) for listener in broker._server._listeners.values()))


def test_many_misbehaving_clients_at_once_do_no_harm(broker: RunningBroker) -> None:
    attacks = [
        bytes(1000),
        PREAMBLE + b"\xff" * 1000,
        PREAMBLE + attach(1, receives=True) * 2,
        PREAMBLE + CLIENT.transfer(1, 0, b""),
        SASL_HEADER.encode() + compose(0, b"\x00\x53\x41\x45", kind=SASL),
    ]

    def attack() -> None:
        for number in range(40):
            with (
                contextlib.suppress(ConnectionError),
                socket.create_connection(("127.0.0.1", broker.port("n")), timeout=5) as peer,
            ):
                peer.sendall(attacks[number % len(attacks)])

    threads = [threading.Thread(target=attack) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
