"""Requests to an entity's `$management` node within a transaction, as .NET sends them in a TransactionScope."""

import uuid

import pytest

from broker.tests.unit.controller import Controller, ask, new_namespace, put, requester, texts
from busway_broker.core.namespace import Namespace
from busway_broker.core.times import milliseconds
from shared.amqp.codec import encode
from shared.amqp.sections import data
from shared.amqp.values import Value, array, binary, list_, map_, string, symbol, timestamp
from shared.amqp.values import uuid as uuid_value


@pytest.fixture
def namespace() -> Namespace:
    return new_namespace()


@pytest.fixture
def peer(namespace: Namespace) -> Controller:
    return requester(namespace, "target")


def schedule(namespace: Namespace) -> dict[str, Value]:
    annotations = map_([(symbol("x-opt-scheduled-enqueue-time"), timestamp(milliseconds(namespace.clock) + 60_000))])
    message = b"\x00\x53\x72" + encode(annotations) + data(b"later")
    return {"messages": list_([map_([(string("message"), binary(message))])])}


def test_scheduling_and_cancelling_are_part_of_a_transaction(namespace: Namespace, peer: Controller) -> None:
    incoming = namespace.queue("target").incoming
    transaction = peer.declare()
    (first,) = ask(peer, transaction, "schedule-message", schedule(namespace))["sequence-numbers"]
    (second,) = ask(peer, None, "schedule-message", schedule(namespace))["sequence-numbers"]
    assert list(incoming.scheduled) == [second]
    peer.discharge(transaction)
    assert sorted(incoming.scheduled) == [first, second]
    numbers = {"sequence-numbers": array(0x81, [Value(0x81, first)])}
    for fail in (True, False):
        transaction = peer.declare()
        assert ask(peer, transaction, "cancel-scheduled-message", numbers)["status"] == 200
        assert ask(peer, transaction, "cancel-scheduled-message", numbers)["status"] == 410
        peer.discharge(transaction, fail=fail)
        assert sorted(incoming.scheduled) == ([first, second] if fail else [second])


def test_a_message_is_settled_by_request_within_a_transaction(namespace: Namespace, peer: Controller) -> None:
    put(namespace, "target", b"m")
    peer.receiver("target")
    (message,) = namespace.store("target").messages.values()
    token = uuid.UUID(bytes_le=message.lock_token or b"")
    body = {"disposition-status": string("completed"), "lock-tokens": array(0x98, [uuid_value(token)])}
    for fail in (True, False):
        transaction = peer.declare()
        assert ask(peer, transaction, "update-disposition", body)["status"] == 200
        assert texts(namespace, "target") == [b"m"]
        peer.discharge(transaction, fail=fail)
    assert texts(namespace, "target") == []


def test_rules_are_not_part_of_a_transaction(peer: Controller) -> None:
    assert ask(peer, peer.declare(), "add-rule", {})["status"] == 400
