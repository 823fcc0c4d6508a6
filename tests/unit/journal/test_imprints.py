"""Digests: the same wherever the message is the same, another one as soon as it is not."""

import uuid
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.sections import data
from shared.amqp.values import (
    NULL,
    Value,
    binary,
    boolean,
    int_,
    list_,
    long,
    string,
    symbol,
    timestamp,
    ulong,
)
from shared.amqp.values import uuid as amqp_uuid
from shared.journal.imprints import Imprinter, body_digest, of_unreadable
from shared.journal.recording import checks_of
from shared.message.arrival import Origin
from shared.message.mapping import event_into_message, message_into_event
from shared.message.message import Message
from shared.message.metadata import stamp
from shared.rules import parse_action
from tests.messages import annotations, application_properties, header, message, properties

ORIGIN = Origin("west", "orders")
PLAIN = Imprinter()


def digest(
    pairs: Sequence[tuple[str | Value, Value]] = (), imprinter: Imprinter = PLAIN, **options: Any
) -> bytes | None:
    return imprinter.arriving(message(named=pairs, **{"message_id": None, **options})).property_digest


def test_the_body_digest_is_that_of_the_bytes_in_the_data_sections() -> None:
    expected = blake2b(b"hello", digest_size=16).digest(), 5
    assert body_digest(data(b"hello")) == expected
    assert body_digest(b"\x00\x53\x75\xb0\x00\x00\x00\x05hello") == expected
    assert body_digest(data(b"hel") + data(b"lo")) == expected
    assert body_digest(data(b"hellO")) != expected
    assert body_digest(b"") == (blake2b(digest_size=16).digest(), 0)
    large = bytes(1000)
    assert body_digest(data(large)) == (blake2b(large, digest_size=16).digest(), 1000)


def test_the_digest_of_a_value_does_not_depend_on_its_encoding() -> None:
    small, large = b"\x00\x53\x77\x54\x05", b"\x00\x53\x77\x71\x00\x00\x00\x05"
    assert body_digest(small)[0] == body_digest(large)[0]
    assert body_digest(small)[0] != body_digest(b"\x00\x53\x77\x55\x05")[0]  # a long
    assert body_digest(b"\x00\x53\x77\x40")[0] == body_digest(data(b""))[0]


@given(st.permutations([("a", int_(1)), ("b", string("x")), ("c", boolean(True)), ("d", NULL)]))
def test_order_of_properties_does_not_matter(pairs: list[tuple[str, Value]]) -> None:
    assert digest(pairs) == digest([("a", int_(1)), ("b", string("x")), ("c", boolean(True)), ("d", NULL)])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Value(0x54, 5), Value(0x71, 5)),
        (Value(0x55, -5), Value(0x81, -5)),
        (Value(0x43, 0), Value(0x70, 0)),
        (Value(0x53, 200), Value(0x80, 200)),
        (Value(0x56, True), Value(0x41, True)),
        (Value(0xA1, "text"), Value(0xB1, "text")),
        (Value(0xA1, "text"), symbol("text")),
        (Value(0xA0, b"ab"), Value(0xB0, b"ab")),
        (list_([Value(0x54, 5)]), Value(0xD0, (Value(0x71, 5),))),
        # 1.5 as decimal32 and as decimal64, which Azure's host makes one of the other.
        (Value(0x74, (0x32000000 + 15).to_bytes(4)), Value(0x84, ((397 << 53) + 15).to_bytes(8))),
    ],
)
def test_encoding_of_a_value_does_not_matter(one: Value, other: Value) -> None:
    assert digest([("name", one)]) == digest([("name", other)])
    assert digest([(Value(0xB1, "name"), one)]) == digest([(symbol("name"), other)])


@pytest.mark.parametrize(
    "other",
    [
        [("a", long(1)), ("b", string("x"))],
        [("a", int_(2)), ("b", string("x"))],
        [("A", int_(1)), ("b", string("x"))],
        [("a", int_(1))],
        [("a", int_(1)), ("b", string("x")), ("c", NULL)],
        [("a", string("x")), ("b", int_(1))],
        [("a", int_(1)), ("b", binary(b"x"))],
    ],
)
def test_any_other_change_shows(other: list[tuple[str | Value, Value]]) -> None:
    assert digest(other) != digest([("a", int_(1)), ("b", string("x"))])


def test_the_broker_properties_of_the_sender_count_and_those_of_a_hop_do_not() -> None:
    plain = digest(subject=string("s"), message_id=string("m"))
    assert digest(subject=string("t"), message_id=string("m")) != plain
    assert digest(to=string("s"), message_id=string("m")) != plain
    same: dict[str, Any] = {
        "absolute_expiry_time": timestamp(5),
        "creation_time": timestamp(4),
        "session_id": string("k"),
    }
    assert digest(subject=string("s"), message_id=string("other"), **same) == plain
    assert digest(subject=string("s"), content_type=symbol("")) == plain
    identity = uuid.uuid4()
    assert digest(correlation_id=amqp_uuid(identity)) == digest(correlation_id=string(str(identity)))
    assert digest(correlation_id=ulong(7)) == digest(correlation_id=string("7"))


def test_stamps_dead_letter_properties_and_what_the_actions_set_are_left_out() -> None:
    plain = digest([("a", int_(1))])
    added = [("repl-path", string("x")), ("DeadLetterReason", string("y")), ("DeadLetterErrorDescription", NULL)]
    assert digest([("a", int_(1)), *added]) == plain
    marking = Imprinter([parse_action("SET Replication = 1; REMOVE old; SET sys.Label = 'x'; SET sys.To = 't'")])
    unmarked = digest([("a", int_(1))], marking)
    assert unmarked == plain
    changed = [("a", int_(1)), ("replication", int_(1)), ("OLD", int_(3))]
    assert digest(changed, marking, subject=string("x"), to=string("t")) == unmarked
    assert digest(changed, marking, correlation_id=string("c")) != unmarked


@pytest.mark.parametrize(
    "pairs", [[], [("a", int_(1))], [("a", int_(1)), ("b", binary(b"\x00\xff")), ("c", list_([int_(5)]))]]
)
def test_an_imprint_survives_stamps_and_the_way_to_service_bus_and_back(pairs: list[tuple[str, Value]]) -> None:
    event = message(named=pairs, message_id=None, subject=string("s"))
    event.set_annotations({"x-opt-partition-key": string("k")})
    arrived = PLAIN.arriving(event)
    stamp(event)
    assert PLAIN.departing(event, arrived) is arrived
    event_into_message(event)
    assert PLAIN.departing(event, arrived) is arrived
    in_service_bus = PLAIN.arriving(Message.received(event.encode(), ORIGIN))
    assert in_service_bus.property_digest == arrived.property_digest
    assert in_service_bus.body_digest == arrived.body_digest
    assert in_service_bus.order_key == arrived.order_key == "k"
    back = Message.received(event.encode(), Origin("east", "orders"))
    message_into_event(back)
    assert PLAIN.arriving(back).property_digest == arrived.property_digest


def test_a_change_on_the_way_gives_another_imprint() -> None:
    sent = message(named=[("a", int_(1))], body=b"x", message_id=None, subject=string("s"))
    arrived = PLAIN.arriving(sent)
    sent.body = b"other"
    assert PLAIN.departing(sent, arrived).body_digest == blake2b(b"other", digest_size=16).digest()
    sent.body = b"x"
    assert PLAIN.departing(sent, arrived) is arrived
    sent.set_properties({"a": int_(2)})
    departed = PLAIN.departing(sent, arrived)
    assert departed.property_digest == digest([("a", int_(2))], subject=string("s"))


@pytest.mark.parametrize("pairs", [[], [("a", int_(1))]])
def test_property_added_by_an_editor_changes_the_imprint(pairs: list[tuple[str, Value]]) -> None:
    sent = message(named=pairs, message_id=None)
    arrived = PLAIN.arriving(sent)
    sent.set_properties({"b": int_(2)})
    stamp(sent)
    assert PLAIN.departing(sent, arrived).property_digest == digest([*pairs, ("b", int_(2))])


def test_the_check_is_the_digests_combined() -> None:
    body, properties = bytes.fromhex("9a0364b9e99bb480") + bytes(8), bytes.fromhex("0f3c5a1b9e7d2468")
    assert checks_of([body, body], [properties, bytes(8)]) == ["953f3ea277e690e8", "9a0364b9e99bb480"]


def test_other_fields_of_an_imprint() -> None:
    encoded = (
        header(time_to_live=60_000, delivery_count=2)
        + annotations({"x-opt-enqueued-time": timestamp(1000), "x-opt-sequence-number": long(7)})
        + properties(message_id=ulong(5), session_id=string("s"))
        + application_properties([("repl-path", string("north;south"))])
        + data(b"x")
    )
    imprint = PLAIN.arriving(Message.received(encoded, ORIGIN))
    assert imprint.message_id == "5"
    assert imprint.order_key == "s"
    assert imprint.expires_at == 61_000
    assert imprint.attempt == 2
    assert list(imprint.hops) == ["north", "south"]


@pytest.mark.parametrize(("deliveries", "attempt"), [(2**31 - 1, 2**31 - 1), (2**31, None), (2**32 - 1, None)])
def test_oversized_delivery_count_is_left_out(deliveries: int, attempt: int | None) -> None:
    assert PLAIN.arriving(Message.received(header(delivery_count=deliveries), ORIGIN)).attempt == attempt


def test_unreadable_message_has_an_imprint() -> None:
    broken = message(body=b"x")
    broken.sections.application_properties = b"\x00\x53\x74\xc1\x05\x02\xa1\x09x"
    imprint = PLAIN.arriving(broken)
    assert imprint.property_digest is not None
    assert imprint.body_digest == blake2b(b"x", digest_size=16).digest()
    assert of_unreadable(b"\x00nonsense").body_size == 9
