"""
What Azure does and this broker does not, each stated as the test that will pass when it does; docs/broker.md says why.

A test here that passes is a failure: then the gap is closed, and the page and this file are out of date.
"""

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from broker.tests.client_frames import ClientFrames, codes, heard_in
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.amqp import performatives
from shared.amqp.codec import plain
from shared.amqp.fields import compose_list, number_field, text_field, value_field
from shared.amqp.frames import compose
from shared.amqp.values import NULL, TRUE, Value, described, list_, string, symbol, ulong

SOURCE, TARGET = 0x28, 0x29


NAMESPACES = [NamespaceConfig(name="n", queues=(QueueConfig(name="q"),), hubs=(HubConfig(name="h"),))]


@pytest.fixture
def peer(broker: RunningBroker) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", broker.port("n")), timeout=2) as peer:
        yield peer


def terminus(code: int, *fields: Value) -> Value:
    return described(ulong(code), list_(fields))


def answer(
    peer: socket.socket, receives: bool, source: Value, target: Value, capability: str | None = None
) -> list[Any]:
    """Attach a link and return the broker's attach as plain data, by the numbers of its fields."""
    capabilities = None if capability is None else symbol(capability)
    encoded = [
        text_field("link"),
        number_field(0),
        b"\x41" if receives else b"\x42",
        *[b"\x40"] * 2,
        *(value_field(each) for each in (source, target)),
        *[b"\x40"] * 2,
        number_field(0),
        *[b"\x40"] * 2,
        value_field(capabilities),
    ]
    peer.sendall(ClientFrames().preamble() + compose(0, compose_list(performatives.ATTACH, encoded)))
    received = b""
    while performatives.ATTACH not in codes(heard_in(received)):
        received += peer.recv(65536)
    fields = next(fields for _, code, fields, _ in heard_in(received)[1:] if code == performatives.ATTACH)
    return [plain(field) if isinstance(field, Value) else field for field in fields]


@pytest.mark.xfail(reason="JMS 2.0 is not there: no temporary queues")
def test_a_temporary_queue_can_be_made_by_attaching_to_it(peer: socket.socket) -> None:
    is_dynamic = [NULL, NULL, NULL, NULL, TRUE]
    attached = answer(peer, True, terminus(SOURCE, *is_dynamic), terminus(TARGET, string("me")))
    assert attached[5] is not None


@pytest.mark.xfail(reason="the Kafka protocol is not there")
def test_an_event_hubs_namespace_speaks_kafka(peer: socket.socket) -> None:
    # An ApiVersions request, version 0: length, api key 18, api version, correlation id, client id.
    request = struct.pack(">hhih2s", 18, 0, 7, 2, b"me")
    peer.sendall(struct.pack(">i", len(request)) + request)
    with contextlib.suppress(ConnectionError):
        length, correlation_id = struct.unpack(">ii", peer.recv(8))
        assert (length > 4, correlation_id) == (True, 7)


@pytest.mark.xfail(reason="idempotent publishing is not there")
def test_a_hub_offers_idempotent_publishing(peer: socket.socket) -> None:
    capability = "com.microsoft:idempotent-producer"
    attached = answer(peer, False, terminus(SOURCE, string("me")), terminus(TARGET, string("h")), capability)
    assert capability in str(attached[11])
