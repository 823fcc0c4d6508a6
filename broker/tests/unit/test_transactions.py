"""Transactions in frames: commit, rollback, timeouts, what is refused, and which entities one may span."""

from typing import Any

import pytest

from broker.tests.client_frames import DETACHED, error_of, terminus
from broker.tests.unit import controller
from broker.tests.unit.controller import Controller, State, deliveries, new_namespace, put, texts
from broker.tests.unit.namespaces import wait
from busway_broker.core.administration import Administration
from busway_broker.core.namespace import Namespace
from busway_broker.core.transaction import MAX_OPEN, MAX_SENT, TIME_OUT
from shared.amqp import performatives
from shared.amqp.frames import compose
from shared.amqp.performatives import ACCEPTED, DECLARED, MODIFIED, REJECTED, RELEASED, Attach
from shared.amqp.sections import data
from shared.amqp.values import NULL, binary, map_, string, symbol

UNKNOWN, ROLLBACK, NOT_ALLOWED = "amqp:transaction:unknown-id", "amqp:transaction:rollback", "amqp:not-allowed"
LOCK_LOST = "com.microsoft:message-lock-lost"


@pytest.fixture
def namespace() -> Namespace:
    return new_namespace()


@pytest.fixture
def peer(namespace: Namespace) -> Controller:
    return Controller(namespace)


@pytest.fixture
def spanning(namespace: Namespace) -> Controller:
    return Controller(namespace, spans_entities=True)


def accepted(transaction_id: bytes) -> State:
    return State(ACCEPTED, transaction_id)


def received(namespace: Namespace, peer: Controller) -> int:
    """Let a client receive a message from `source`, which has no other one, and return the number of its delivery."""
    put(namespace, "source", b"m")
    _, heard = peer.receiver("source", credit=1)
    (number,) = deliveries(heard)
    return number


# Commit and rollback


def test_messages_are_there_after_the_commit_and_not_before(namespace: Namespace, peer: Controller) -> None:
    sender = peer.sender("target")
    transaction = peer.declare()
    assert peer.send_in(transaction, sender, b"a") == accepted(transaction)
    assert peer.send_in(transaction, sender, b"b") == accepted(transaction)
    assert texts(namespace, "target") == []
    assert peer.discharge(transaction) == State(ACCEPTED)
    assert texts(namespace, "target") == [b"a", b"b"]


def test_nothing_is_there_after_a_rollback(namespace: Namespace, peer: Controller) -> None:
    sender = peer.sender("target")
    transaction = peer.declare()
    peer.send_in(transaction, sender, b"a")
    assert peer.discharge(transaction, fail=True) == State(ACCEPTED)
    assert texts(namespace, "target") == []
    assert peer.discharge(transaction) == State(REJECTED, condition=UNKNOWN)


@pytest.mark.parametrize(
    ("outcome", "answer", "left"),
    [
        (controller.ACCEPTED, ACCEPTED, [[], []]),
        (controller.RELEASED, RELEASED, [[b"m"], []]),
        (controller.ABANDONED, MODIFIED, [[b"m"], []]),
        (controller.DEFERRED, MODIFIED, [[b"m"], []]),
        (controller.DEAD_LETTERED, REJECTED, [[], [b"m"]]),
    ],
)
def test_a_message_is_settled_with_the_commit(
    namespace: Namespace, peer: Controller, outcome: Any, answer: int, left: list[list[bytes]]
) -> None:
    number = received(namespace, peer)
    transaction = peer.declare()
    assert peer.settle_in(transaction, number, outcome) == State(answer, transaction)
    (message,) = namespace.store("source").messages.values()
    assert message.lock_token is not None
    peer.discharge(transaction)
    assert [texts(namespace, each) for each in ("source", "source/$deadletterqueue")] == left
    assert not any(message.lock_token for message in namespace.store("source").messages.values())


def test_a_message_can_be_settled_again_on_its_link_after_a_rollback(namespace: Namespace, peer: Controller) -> None:
    number = received(namespace, peer)
    transaction = peer.declare()
    peer.settle_in(transaction, number)
    peer.discharge(transaction, fail=True)
    assert texts(namespace, "source") == [b"m"]
    assert peer.settle(number) == State(ACCEPTED)
    assert texts(namespace, "source") == []


def test_settling_once_more_after_the_commit_changes_nothing(namespace: Namespace, peer: Controller) -> None:
    number = received(namespace, peer)
    transaction = peer.declare()
    peer.settle_in(transaction, number)
    peer.discharge(transaction)
    assert peer.settle(number, controller.RELEASED) is None
    assert texts(namespace, "source") == []


def test_a_message_is_settled_once_in_a_transaction(namespace: Namespace, peer: Controller) -> None:
    number = received(namespace, peer)
    transaction = peer.declare()
    peer.settle_in(transaction, number)
    assert peer.settle_in(transaction, number) == State(REJECTED, transaction, LOCK_LOST)


def test_what_is_sent_in_a_commit_is_delivered_at_once(namespace: Namespace, peer: Controller) -> None:
    sender = peer.sender("target")
    other = Controller(namespace)
    other.receiver("target")
    transaction = peer.declare()
    peer.send_in(transaction, sender, b"a")
    peer.discharge(transaction)
    assert len(deliveries(other.heard())) == 1


def test_two_transactions_do_not_disturb_each_other(namespace: Namespace, peer: Controller) -> None:
    sender = peer.sender("target")
    first, second = peer.declare(), peer.declare()
    peer.send_in(first, sender, b"a")
    peer.send_in(second, sender, b"b")
    peer.discharge(first, fail=True)
    peer.discharge(second)
    assert texts(namespace, "target") == [b"b"]


# What ends a transaction


def test_a_transaction_ends_with_its_control_link(namespace: Namespace, peer: Controller) -> None:
    sender = peer.sender("target")
    transaction = peer.declare()
    peer.send_in(transaction, sender, b"a")
    peer.say(compose(1, performatives.detach(controller.CONTROL, closed=True)))
    assert peer.send_in(transaction, sender, b"b") == State(REJECTED, condition=UNKNOWN)
    assert texts(namespace, "target") == []


def test_a_transaction_ends_with_its_connection(namespace: Namespace, peer: Controller) -> None:
    number = received(namespace, peer)
    sender = peer.sender("source")
    transaction = peer.declare()
    peer.settle_in(transaction, number)
    peer.send_in(transaction, sender, b"a")
    peer.connection.release()
    assert texts(namespace, "source") == [b"m"]
    wait(namespace, 61)
    assert len(deliveries(Controller(namespace).receiver("source")[1])) == 1


def test_a_transaction_times_out_two_minutes_after_its_first_operation(namespace: Namespace, peer: Controller) -> None:
    sender = peer.sender("target")
    transaction = peer.declare()
    wait(namespace, 599)
    peer.send_in(transaction, sender, b"a")
    wait(namespace, TIME_OUT / 1000 - 1)
    assert peer.send_in(transaction, sender, b"b") == accepted(transaction)
    wait(namespace, 2)
    assert peer.send_in(transaction, sender, b"c") == State(REJECTED, condition=UNKNOWN)
    assert peer.discharge(transaction) == State(REJECTED, condition=UNKNOWN)
    assert texts(namespace, "target") == []


def test_a_transaction_is_known_to_its_connection_only(namespace: Namespace, peer: Controller) -> None:
    other = Controller(namespace)
    transaction = peer.declare()
    assert other.send_in(transaction, other.sender("target"), b"a") == State(REJECTED, condition=UNKNOWN)
    assert other.discharge(transaction) == State(REJECTED, condition=UNKNOWN)


def test_nothing_is_sent_or_settled_in_an_unknown_transaction(namespace: Namespace, peer: Controller) -> None:
    number = received(namespace, peer)
    sender = peer.sender("target")
    assert peer.send_in(b"txn", sender, b"a") == State(REJECTED, condition=UNKNOWN)
    assert peer.settle_in(b"txn", number) == State(REJECTED, condition=UNKNOWN)
    assert error_of(peer.transfer_in(b"txn", sender, data(b"b"), settled=True), DETACHED) == UNKNOWN
    assert texts(namespace, "target") == []
    (message,) = namespace.store("source").messages.values()
    assert message.lock_token is not None


# What makes a commit fail, with everything in it


def test_a_lost_lock_fails_the_commit(namespace: Namespace, peer: Controller) -> None:
    number = received(namespace, peer)
    sender = peer.sender("source")
    transaction = peer.declare()
    peer.settle_in(transaction, number)
    peer.send_in(transaction, sender, b"a")
    wait(namespace, 61)
    assert peer.discharge(transaction) == State(REJECTED, condition=ROLLBACK)
    assert texts(namespace, "source") == [b"m"]


@pytest.mark.parametrize("deleted", ["source", "target"])
def test_a_deleted_entity_fails_the_commit(namespace: Namespace, spanning: Controller, deleted: str) -> None:
    number = received(namespace, spanning)
    sender = spanning.sender("target")
    transaction = spanning.declare()
    spanning.settle_in(transaction, number)
    spanning.send_in(transaction, sender, b"a")
    Administration(namespace).delete(deleted)
    assert spanning.discharge(transaction).condition == ROLLBACK
    left = {"source": [b"m"], "target": []}
    del left[deleted]
    assert {each: texts(namespace, each) for each in left} == left


def test_a_settled_send_that_is_refused_fails_the_commit(peer: Controller) -> None:
    sender = peer.sender("s")
    transaction = peer.declare()
    assert peer.send_in(transaction, sender, b"no session id", settled=True) is None
    assert peer.discharge(transaction) == State(REJECTED, condition=ROLLBACK)


def test_a_refused_operation_leaves_the_others(namespace: Namespace, peer: Controller) -> None:
    target, other = peer.sender("target"), peer.sender("other")
    transaction = peer.declare()
    peer.send_in(transaction, target, b"a")
    assert peer.send_in(transaction, other, b"b") == State(REJECTED, transaction, NOT_ALLOWED)
    assert peer.discharge(transaction) == State(ACCEPTED)
    assert texts(namespace, "target") == [b"a"]


# Limits


def test_a_transaction_sends_a_hundred_messages_at_most(namespace: Namespace, peer: Controller) -> None:
    sender = peer.sender("target")
    transaction = peer.declare()
    for _ in range(MAX_SENT):
        assert peer.send_in(transaction, sender, b"a") == accepted(transaction)
    assert peer.send_in(transaction, sender, b"b") == State(REJECTED, transaction, "amqp:internal-error")
    peer.discharge(transaction)
    assert len(texts(namespace, "target")) == MAX_SENT


def test_a_connection_has_a_thousand_open_transactions_at_most(peer: Controller) -> None:
    for _ in range(MAX_OPEN):
        peer.declare()
    assert peer.request(performatives.DECLARE).condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize(
    ("code", "fields", "condition"),
    [
        (performatives.DECLARE, (map_([]),), "amqp:not-implemented"),
        (performatives.DISCHARGE, (NULL,), UNKNOWN),
        (performatives.DISCHARGE, (string("text"),), "amqp:decode-error"),
        (performatives.DISCHARGE, (binary(b"?"), string("no flag")), UNKNOWN),
        (0x70, (), "amqp:not-implemented"),
    ],
)
def test_a_wrong_request_to_the_coordinator_is_rejected(
    peer: Controller, code: int, fields: tuple[Any, ...], condition: str
) -> None:
    rejected = peer.request(code, *fields)
    assert rejected.code == REJECTED
    assert rejected.condition in (condition, "amqp:decode-error")
    assert peer.request(performatives.DECLARE).code == DECLARED


@pytest.mark.parametrize("payload", [b"", b"\x00\x53\x77\x40", b"\x00\x53\x75\xa0\x01x", b"\xff", bytes(2000)])
def test_another_message_to_the_coordinator_is_rejected(peer: Controller, payload: bytes) -> None:
    rejected = controller.state_of(peer.say(peer.transfer(controller.CONTROL, 0, payload, channel=1)))
    assert rejected is not None
    assert rejected.code == REJECTED


# Several entities


def test_a_receiver_and_senders_of_several_entities_share_a_transaction(
    namespace: Namespace, spanning: Controller
) -> None:
    number = received(namespace, spanning)
    target, topic = spanning.sender("target"), spanning.sender("topic")
    for fail in (True, False):
        transaction = spanning.declare()
        assert spanning.settle_in(transaction, number) == accepted(transaction)
        assert spanning.send_in(transaction, target, b"a") == accepted(transaction)
        assert spanning.send_in(transaction, topic, b"b") == accepted(transaction)
        spanning.discharge(transaction, fail=fail)
        assert texts(namespace, "source") == ([b"m"] if fail else [])
        assert texts(namespace, "target") == ([] if fail else [b"a"])
        assert texts(namespace, "topic/subscriptions/one") == ([] if fail else [b"b"])


def test_a_second_receiving_entity_is_refused(spanning: Controller) -> None:
    spanning.receiver("source")
    _, heard = spanning.receiver("target")
    assert error_of(heard, DETACHED) == NOT_ALLOWED
    _, heard = spanning.receiver("source/$deadletterqueue")
    assert DETACHED not in [each[1] for each in heard]


def test_a_topic_and_its_subscriptions_are_one_entity(namespace: Namespace, peer: Controller) -> None:
    put(namespace, "topic", b"m")
    _, one = peer.receiver("topic/Subscriptions/one")
    _, two = peer.receiver("topic/Subscriptions/two")
    topic = peer.sender("topic")
    transaction = peer.declare()
    peer.settle_in(transaction, deliveries(one)[0])
    peer.settle_in(transaction, deliveries(two)[0])
    assert peer.send_in(transaction, topic, b"n") == accepted(transaction)
    peer.discharge(transaction)
    assert texts(namespace, "topic/subscriptions/one") == texts(namespace, "topic/subscriptions/two") == [b"n"]


def test_an_entity_transfers_to_another_one(namespace: Namespace, peer: Controller) -> None:
    number = received(namespace, peer)
    properties = map_([(symbol("com.microsoft:transfer-destination-address"), string("amqp://here/Target"))])
    link = Attach("via", 40, False, 0, 0, terminus(0x28, "me"), terminus(0x29, "source"), 0, None, (), properties)
    (attached, *_) = peer.say(compose(0, performatives.attach(link)))
    assert attached[2][13] == properties
    transaction = peer.declare()
    peer.settle_in(transaction, number)
    assert peer.send_in(transaction, 40, b"a") == accepted(transaction)
    peer.discharge(transaction)
    assert (texts(namespace, "source"), texts(namespace, "target")) == ([], [b"a"])
    assert peer.send_text(40, b"b") == State(ACCEPTED)
    assert texts(namespace, "target") == [b"a", b"b"]


def test_what_the_target_refuses_goes_to_the_transfer_dead_letter_queue(
    namespace: Namespace, spanning: Controller
) -> None:
    number = received(namespace, spanning)
    sessions = spanning.sender("s")
    transaction = spanning.declare()
    spanning.settle_in(transaction, number)
    spanning.send_in(transaction, sessions, b"no session id")
    assert spanning.discharge(transaction) == State(ACCEPTED)
    assert len(namespace.store("source/$transfer/$deadletterqueue").messages) == 1
    assert texts(namespace, "source") == []
