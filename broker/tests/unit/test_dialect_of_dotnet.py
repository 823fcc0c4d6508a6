"""What .NET clients send and others do not, in frames: early flows, single symbols, transactions, releases."""

from typing import Any

import pytest

from broker.tests.client_frames import DETACHED, codes, error_of, terminus
from broker.tests.signatures import signature
from broker.tests.unit.peer import Peer, opened
from busway_broker.config import SharedAccessKey
from shared.amqp import dispositions, performatives
from shared.amqp.codec import decode_all, encode, plain
from shared.amqp.fields import NULL as NULL_FIELD
from shared.amqp.fields import compose_list, number_field, symbol_field, text_field, value_field
from shared.amqp.frames import compose
from shared.amqp.performatives import Flow
from shared.amqp.sections import data, split
from shared.amqp.values import NULL, Value, array, described, list_, map_, string, symbol, uint, ulong

NEXT_SESSION = map_([(symbol("com.microsoft:session-filter"), NULL)])
SESSION_A = map_([(symbol("com.microsoft:session-filter"), string("a"))])
UNKNOWN = "amqp:transaction:unknown-id"
TRANSACTIONAL = described(ulong(0x34), list_([Value(0xA0, b"txn"), described(ulong(0x24), list_([]))]))


def send_to_session(peer: Peer, *texts: bytes) -> list[Any]:
    properties = compose_list(0x73, [*[NULL_FIELD] * 10, text_field("a")])
    peer.say(peer.attach(9, receives=False, address="s"))
    return peer.say(*(peer.transfer(9, number, properties + data(text)) for number, text in enumerate(texts)))


# Flows before the answer to the attach


def test_credit_before_the_session_is_granted_counts_once_it_is() -> None:
    peer = opened()
    assert peer.say(peer.attach(0, receives=True, address="s", filters=NEXT_SESSION), peer.flow(0, 1)) == []
    send_to_session(peer, b"x", b"y")
    peer.say(peer.flow(9, 0))
    store = peer.namespace.store("s")
    assert [message.lock_token is not None for message in store.peek(0)] == [True, False]


@pytest.mark.parametrize(("last_credit", "transfers"), [(None, 1), (2, 2)])
def test_the_last_flow_before_the_session_is_granted_is_answered_once_it_is(
    last_credit: int | None, transfers: int
) -> None:
    peer = opened()
    last = b"" if last_credit is None else peer.flow(0, last_credit)
    peer.say(peer.attach(0, receives=True, address="s", filters=NEXT_SESSION), peer.flow(0, 5, drain=True), last)
    heard = send_to_session(peer, b"x", b"y", b"z")
    assert codes(heard)[:2] == [performatives.ATTACH, performatives.TRANSFER]
    flows = [fields[5:7] for _, code, fields, _ in heard if code == performatives.FLOW]
    assert flows == ([] if last_credit else [[5, 0]])
    assert codes(heard).count(performatives.TRANSFER) == transfers


def test_flow_of_a_refused_session_link_is_ignored() -> None:
    peer = opened()
    peer.say(peer.attach(0, receives=True, address="s", filters=SESSION_A))
    heard = peer.say(peer.attach(1, receives=True, address="s", filters=SESSION_A), peer.flow(1, 5))
    assert codes(heard) == [performatives.ATTACH, DETACHED]


def test_echo_of_a_sender_is_answered_with_its_credit() -> None:
    peer = opened()
    state = Flow(1, 100, 0, 5000, 9, 0, 0, drain=False, echo=True)
    heard = peer.say(peer.attach(9, receives=False, address="q"), compose(0, performatives.flow(state)))
    assert codes(heard) == [performatives.ATTACH, performatives.FLOW, performatives.FLOW]
    assert heard[2][2][4:7] == [9, 0, 1000]


# Fields that may hold one symbol instead of an array


def hub_attach(desired: Value) -> bytes:
    fields = [
        *(text_field("link"), number_field(0), b"\x41", NULL_FIELD, NULL_FIELD),
        value_field(terminus(0x28, "h/consumergroups/$default/partitions/0")),
        value_field(terminus(0x29, "me")),
        *[NULL_FIELD] * 5,
        encode(desired),
        NULL_FIELD,
    ]
    return compose(0, compose_list(performatives.ATTACH, fields))


@pytest.mark.parametrize(
    "desired",
    [
        symbol("com.microsoft:enable-receiver-runtime-metric"),
        array(0xA3, [Value(0xA3, "com.microsoft:enable-receiver-runtime-metric")]),
        array(0xA3, [Value(0xA3, "other"), Value(0xA3, "com.microsoft:enable-receiver-runtime-metric")]),
    ],
)
def test_desired_capability_may_be_one_symbol_or_an_array(desired: Value) -> None:
    peer = opened()
    peer.say(peer.attach(9, receives=False, address="h"), peer.transfer(9, 0, data(b"event")))
    heard = peer.say(hub_attach(desired), peer.flow(0, 1))
    (payload,) = [payload for _, code, _, payload in heard if code == performatives.TRANSFER]
    assert "last_enqueued_sequence_number" in str(plain(decode_all(split(payload).delivery_annotations)))


@pytest.mark.parametrize(
    "desired", [uint(5), string("ü"), array(0x50, [Value(0x50, 5)]), array(0xB1, [Value(0xB1, "ü")])]
)
def test_capabilities_of_another_type_are_an_error(desired: Value) -> None:
    peer = opened()
    assert error_of(peer.say(hub_attach(desired)), performatives.CLOSE) == "amqp:decode-error"


def test_single_symbols_are_taken_in_every_field_that_may_have_several() -> None:
    peer = opened()
    one = symbol_field("one")
    opening = compose_list(
        performatives.OPEN, [text_field("me"), NULL_FIELD, NULL_FIELD, NULL_FIELD, NULL_FIELD, one, one, one, one]
    )
    begin = [NULL_FIELD, number_field(0), number_field(100), number_field(100), NULL_FIELD, one, one]
    other = Peer()
    assert codes(other.say(b"AMQP\x00\x01\x00\x00", compose(0, opening), compose(0, compose_list(0x11, begin)))) == [
        performatives.OPEN,
        performatives.BEGIN,
    ]
    rest = [NULL] * 8
    source = terminus(0x28, "q", *rest, symbol("amqp:accepted:list"), symbol("queue"))
    fields = [
        *(text_field("link"), number_field(0), b"\x41", NULL_FIELD, NULL_FIELD, value_field(source)),
        value_field(terminus(0x29, "me", *[NULL] * 5, symbol("queue"))),
        *[NULL_FIELD] * 4,
        *(one, one),
    ]
    assert codes(peer.say(compose(0, compose_list(performatives.ATTACH, fields)))) == [performatives.ATTACH]


# Tokens that are sent with requests

KEY = SharedAccessKey(name="Root", key="secret")


def read_hub(peer: Peer, token: str | None, first_handle: int = 4) -> Any:
    properties = {"operation": "READ", "name": "h", "type": "com.microsoft:eventhub"}
    if token is not None:
        properties["security_token"] = token
    application = encode(map_((string(name), string(text)) for name, text in properties.items()))
    request = (
        compose_list(0x73, [text_field("id"), *[NULL_FIELD] * 3, text_field("me")]) + b"\x00\x53\x74" + application
    )
    heard = peer.say(
        peer.attach(first_handle, receives=False, address="$management"),
        peer.attach(first_handle + 1, receives=True, address="$management"),
        peer.flow(first_handle + 1, 10),
        peer.transfer(first_handle, 0, request),
    )
    (payload,) = [payload for _, code, _, payload in heard if code == performatives.TRANSFER]
    answer = plain(decode_all(split(payload).application_properties))
    assert isinstance(answer, dict)
    return answer["status-code"]


@pytest.mark.parametrize(
    "text", [None, "", "nonsense", signature("sb://host/h", KEY, secret="wrong"), signature("sb://host/other", KEY)]
)
def test_hub_request_is_authorized_by_the_token_it_carries_and_by_no_earlier_one(text: str | None) -> None:
    peer = opened(keys=(KEY,))
    assert read_hub(peer, signature("sb://host/h", KEY)) == 200
    assert read_hub(peer, text, first_handle=6) == 401


# States within a transaction


def test_state_on_the_first_frame_counts_for_the_whole_delivery() -> None:
    peer = opened((9, False, "q"))
    fields = [
        *(number_field(9), number_field(0), encode(Value(0xA0, b"tag")), NULL_FIELD),
        *(b"\x42", b"\x41", NULL_FIELD, encode(TRANSACTIONAL)),
    ]
    first = compose(0, compose_list(performatives.TRANSFER, fields), data(b"x")[:3])
    heard = peer.say(first, peer.transfer(9, 0, data(b"x")[3:]))
    assert UNKNOWN in str(plain(heard[0][2][4]))
    assert codes(peer.say(peer.transfer(9, 1, data(b"y")))) == [performatives.DISPOSITION]
    assert len(list(peer.namespace.store("q").peek(0))) == 1


def test_flow_that_asks_for_messages_within_a_transaction_ends_the_link() -> None:
    peer = opened()
    peer.send(b"x")
    peer.say(peer.attach(0, receives=True, address="q"))
    properties = map_([(symbol("txn-id"), Value(0xA0, b"txn"))])
    fields = [
        *(number_field(1), number_field(100), number_field(0), number_field(100), number_field(0), number_field(0)),
        *(number_field(1), NULL_FIELD, NULL_FIELD, NULL_FIELD, value_field(properties)),
    ]
    heard = peer.say(compose(0, compose_list(performatives.FLOW, fields)))
    assert error_of(heard, DETACHED) == "amqp:not-implemented"


# Released messages


def release(peer: Peer, *delivery_ids: int) -> list[Any]:
    return peer.say(
        *(
            compose(0, dispositions.disposition(role=True, delivery_id=number, state=performatives.RELEASED_STATE))
            for number in delivery_ids
        )
    )


def bodies(heard: list[Any]) -> list[bytes]:
    return [bytes(payload[-1:]) for _, code, _, payload in heard if code == performatives.TRANSFER]


@pytest.mark.parametrize(("go_last", "order"), [(True, [b"c", b"a", b"b"]), (False, [b"a", b"b", b"c"])])
def test_released_messages_go_behind_later_ones_where_configured(go_last: bool, order: list[bytes]) -> None:
    peer = opened(released_go_last=go_last)
    peer.send(b"a", b"b", b"c")
    assert bodies(peer.say(peer.attach(0, receives=True, address="q"), peer.flow(0, 2))) == [b"a", b"b"]
    assert release(peer, 0, 1) == []
    assert bodies(peer.say(peer.flow(0, 3, delivery_count=2, received=2))) == order
    assert [message.delivery_count for message in peer.namespace.store("q").peek(0)] == [0, 0, 0]


def test_released_message_of_a_session_keeps_its_place() -> None:
    peer = opened()
    send_to_session(peer, b"a", b"b", b"c")
    assert bodies(peer.say(peer.attach(0, receives=True, address="s", filters=SESSION_A), peer.flow(0, 2))) == [
        b"a",
        b"b",
    ]
    release(peer, 0, 1)
    assert bodies(peer.say(peer.flow(0, 3, delivery_count=2, received=2))) == [b"a", b"b", b"c"]
