"""Transactions on a partitioned entity, which may be on one partition only."""

from typing import Any

import pytest

from broker.tests.unit.controller import Controller, State, deliveries, state_of, texts
from broker.tests.unit.namespaces import namespace_of
from busway_broker.config import QueueConfig
from busway_broker.core.namespace import Namespace
from busway_broker.core.partition_hash import partition_of_key
from busway_broker.core.sequence_numbers import PARTITIONS
from shared.amqp.codec import encode
from shared.amqp.fields import compose_list, text_field
from shared.amqp.performatives import ACCEPTED, REJECTED
from shared.amqp.sections import data
from shared.amqp.values import map_, string, symbol

KEY, VIA = "x-opt-partition-key", "x-opt-via-partition-key"
QUEUES = (
    QueueConfig(name="parts", enable_partitioning=True),
    QueueConfig(name="unique", enable_partitioning=True, requires_duplicate_detection=True),
    QueueConfig(name="sessions", enable_partitioning=True, requires_session=True),
    QueueConfig(name="plain"),
)
ELSEWHERE = next(
    f"key-{n}" for n in range(100) if partition_of_key(f"key-{n}", PARTITIONS) != partition_of_key("a", 16)
)
BESIDE = next(f"key-{n}" for n in range(100) if partition_of_key(f"key-{n}", PARTITIONS) == partition_of_key("a", 16))


@pytest.fixture
def namespace() -> Namespace:
    return namespace_of(*QUEUES)


def message(*, identity: str = "", session: str = "", **annotations: str) -> bytes:
    names = {"key": KEY, "via": VIA}
    section = encode(map_([(symbol(names[name]), string(text)) for name, text in annotations.items()]))
    fields = [b"\x40"] * 11
    if identity:
        fields[0] = text_field(identity)
    if session:
        fields[10] = text_field(session)
    return b"\x00\x53\x72" + section + compose_list(0x73, fields) + data(b"x")


def send(peer: Controller, transaction: bytes | None, handle: int, payload: bytes) -> State | None:
    return state_of(peer.transfer_in(transaction, handle, payload))


@pytest.mark.parametrize(
    ("queue", "first", "second", "arrived"),
    [
        ("parts", {"key": "a"}, {"key": "a"}, 2),
        ("parts", {"key": "a"}, {"key": ELSEWHERE}, None),
        ("parts", {"key": "a"}, {"key": BESIDE}, None),  # another key, whichever partition it is on
        ("parts", {"key": "a"}, {}, None),
        ("unique", {"identity": "1"}, {"identity": "1"}, 1),
        ("unique", {"identity": "1"}, {"identity": "2"}, None),
        ("unique", {"key": "a", "identity": "1"}, {"key": "a", "identity": "2"}, 2),
        ("sessions", {"session": "a"}, {"session": "b"}, None),
        ("plain", {"key": "a"}, {"key": ELSEWHERE}, 2),
        ("plain", {}, {}, 2),
    ],
)
def test_a_transaction_sends_messages_of_one_key_to_a_partitioned_queue(
    namespace: Namespace, queue: str, first: dict[str, str], second: dict[str, str], arrived: int | None
) -> None:
    """*arrived* is how many messages the commit delivers; None if the second is refused."""
    peer = Controller(namespace)
    handle = peer.sender(queue)
    transaction = peer.declare()
    assert send(peer, transaction, handle, message(**first)) == State(ACCEPTED, transaction)
    answer = send(peer, transaction, handle, message(**second))
    refused = State(REJECTED, transaction, "amqp:not-allowed")
    assert answer == (refused if arrived is None else State(ACCEPTED, transaction))
    # What was refused leaves the rest: the client decides.
    assert peer.discharge(transaction) == State(ACCEPTED)
    assert len(texts(namespace, queue)) == (arrived or 1)


@pytest.mark.parametrize(
    ("sent", "is_accepted"),
    [({"key": ELSEWHERE}, False), ({"key": "a"}, True), ({"key": ELSEWHERE, "via": "a"}, True), ({}, False)],
)
def test_a_message_is_settled_with_what_goes_through_its_partition(
    namespace: Namespace, sent: dict[str, str], is_accepted: bool
) -> None:
    """A client that receives from one queue and sends to another in one transaction, as .NET across entities."""
    peer = Controller(namespace, spans_entities=True)
    _, heard = peer.receiver("parts", credit=1)
    outside = Controller(namespace)
    send(outside, None, outside.sender("parts"), message(key="a"))
    heard = peer.say()
    target = peer.sender("plain")
    transaction = peer.declare()
    answers: list[Any] = [peer.settle_in(transaction, deliveries(heard)[0])]
    answers.append(send(peer, transaction, target, message(**sent)))
    assert answers[0] == State(ACCEPTED, transaction)
    assert (answers[1] == State(ACCEPTED, transaction)) == is_accepted


def test_messages_of_two_partitions_are_not_settled_together(namespace: Namespace) -> None:
    peer = Controller(namespace)
    handle = peer.sender("parts")
    for key in ("a", ELSEWHERE):
        send(peer, None, handle, message(key=key))
    _, heard = peer.receiver("parts")
    transaction = peer.declare()
    first, second = deliveries(heard)
    assert peer.settle_in(transaction, first) == State(ACCEPTED, transaction)
    assert peer.settle_in(transaction, second) == State(REJECTED, transaction, "amqp:not-allowed")
