"""What the broker takes from a sender, and which bytes it keeps."""

import contextlib
import datetime as dt
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_broker import errors
from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.content import read_batch, read_content
from busway_broker.core.event import read_event
from busway_broker.core.namespace import Namespace
from busway_broker.errors import Refusal
from shared.amqp.codec import encode
from shared.amqp.errors import DECODE_ERROR, NOT_ALLOWED
from shared.amqp.sections import Sections, data, split
from shared.amqp.values import (
    NULL,
    TRUE,
    Value,
    binary,
    described,
    double,
    list_,
    long,
    map_,
    string,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
)
from shared.clock import ManualClock
from shared.rules import Rule, parse_filter

HEADER, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, FOOTER = 0x70, 0x72, 0x73, 0x74, 0x78


def section(number: int, value: Value) -> bytes:
    return encode(described(ulong(number), value))


def annotations(**pairs: Value) -> bytes:
    return section(ANNOTATIONS, map_((symbol(name.replace("_", "-")), value) for name, value in pairs.items()))


def properties(*fields: Value) -> bytes:
    return section(PROPERTIES, list_(fields))


def application_properties(**pairs: Value) -> bytes:
    return section(APPLICATION_PROPERTIES, map_((string(name), value) for name, value in pairs.items()))


def refused(message: bytes) -> str:
    with pytest.raises(Refusal) as refusal:
        read_content(message)
    return refusal.value.condition


def stored(message: bytes) -> Sections:
    """Return what a receiver gets of an encoded message."""
    clock = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    queue = Namespace(NamespaceConfig(name="n", queues=(QueueConfig(name="q"),)), clock).queue("q")
    queue.publish(read_content(message))
    return split(next(iter(queue.backlog.store.messages.values())).encode())


def test_the_bare_message_leaves_as_it_came() -> None:
    wide = Value(0x71, 5)  # an int in four bytes where one would do
    sent = properties(string("id"), NULL, string("to")) + application_properties(number=wide, text=symbol("s"))
    footer = section(FOOTER, map_([(symbol("f"), TRUE)]))
    message = split(stored(sent + data(b"one") + data(b"two") + footer).encode())
    assert message.properties + message.application_properties == sent
    assert message.body == data(b"one") + data(b"two")
    assert message.footer == footer


def test_a_time_to_live_beyond_the_header_is_the_time_between_creation_and_expiry() -> None:
    def life(ttl: int, creation: int, expiry: int) -> int | None:
        times = properties(*[NULL] * 8, timestamp(expiry), timestamp(creation))
        return read_content(section(HEADER, list_([NULL, NULL, uint(ttl)])) + times + data(b"")).time_to_live

    assert read_content(section(HEADER, list_([NULL, NULL, uint(1)])) + data(b"")).time_to_live == 1
    assert read_content(section(HEADER, list_([NULL, NULL, uint(2**32 - 1)])) + data(b"")).time_to_live is None
    assert life(2**32 - 1, 1_000, 1_000 + 2**33) == 2**33
    assert life(2**32 - 1, 1_000, 253_402_300_799_999) is None
    assert life(2**32 - 1, -(2**63), 2**40) is None  # no storage would hold the number
    assert life(5_000, 1_000, 1_000 + 2**33) == 5_000


def test_only_the_message_id_is_added_where_there_is_none() -> None:
    rest = (NULL, string("to"), string("subject"))
    content = read_content(properties(NULL, *rest) + data(b""))
    assert len(content.message_id) == 34
    assert split(content.bare).properties == properties(Value(0xA1, content.message_id[2:].decode()), *rest)
    assert read_content(data(b"")).message_id != content.message_id


def test_header_and_annotations_keep_what_the_sender_may_set() -> None:
    header = section(HEADER, list_([TRUE, ubyte(7), uint(60_000), TRUE, uint(9)]))
    mine = {"x_opt_partition_key": string("k"), "x_mine": long(1)}
    assigned = {"x_opt_sequence_number": long(99), "x_opt_locked_until": timestamp(1), "x_opt_lock_token": NULL}
    message = stored(header + annotations(**mine, **assigned) + data(b""))
    assert message.header == section(HEADER, Value(0xC0, (TRUE, ubyte(7), Value(0x70, 60_000), NULL, Value(0x70, 0))))
    for name in ("x-opt-partition-key", "x-mine", "x-opt-sequence-number"):
        assert message.message_annotations.count(name.encode()) == 1
    assert b"x-opt-lock-token" not in message.message_annotations
    assert b"x-opt-locked-until" not in message.message_annotations


def test_routing_data_is_read() -> None:
    fields = [string("id"), *[NULL] * 9, string("session")]
    header = section(HEADER, list_([NULL, NULL, uint(5000)]))
    extra = annotations(x_opt_partition_key=string("session"), x_opt_scheduled_enqueue_time=timestamp(77))
    content = read_content(header + extra + properties(*fields) + data(b""))
    assert (content.session_id, content.partition_key) == ("session", "session")
    assert (content.time_to_live, content.scheduled_enqueue_time) == (5000, 77)


@pytest.mark.parametrize(
    ("message", "condition"),
    [
        (application_properties(b=binary(b"x")), errors.MESSAGE_SIZE_EXCEEDED),
        (application_properties(b=Value(0xB0, b"x")), errors.MESSAGE_SIZE_EXCEEDED),
        (application_properties(t=string("x" * 32_786)), errors.INTERNAL_ERROR),
        (application_properties(**{name: string("x" * 30_000) for name in "abc"}), errors.MESSAGE_SIZE_EXCEEDED),
        (section(HEADER, list_([NULL, NULL, uint(0)])), errors.INTERNAL_ERROR),
        (properties(double(1.5)), DECODE_ERROR),
        (properties(TRUE), DECODE_ERROR),
        (properties(string("x" * 129)), errors.ARGUMENT_OUT_OF_RANGE),
        (properties(*[NULL] * 10, string("x" * 129)), errors.ARGUMENT_OUT_OF_RANGE),
        (annotations(x_opt_partition_key=string("x" * 129)), errors.ARGUMENT_OUT_OF_RANGE),
        (annotations(x_opt_partition_key=string("a")) + properties(*[NULL] * 10, string("b")), errors.ARGUMENT_ERROR),
        (annotations(x_opt_message_state=NULL), NOT_ALLOWED),
        (b"\x00\x53\x73\xc0", DECODE_ERROR),
        (section(HEADER, list_([NULL, NULL, string("soon")])), DECODE_ERROR),
    ],
)
def test_what_service_bus_does_not_take_is_refused(message: bytes, condition: str) -> None:
    assert refused(message) == condition


def test_identifiers_of_128_characters_fit() -> None:
    assert read_content(properties(string("é" * 128), *[NULL] * 9, string("x" * 128))).session_id == "x" * 128


def test_a_batch_is_its_data_sections() -> None:
    parts = [properties(string(str(number))) + data(b"x" * number) for number in (1, 300)]
    assert read_batch(b"".join(map(data, parts))) == parts
    with pytest.raises(Refusal, match="data sections only"):
        read_batch(section(0x77, string("x")))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(junk: bytes) -> None:
    for read in (read_content, read_batch):
        with contextlib.suppress(Refusal):
            read(junk)


@pytest.mark.parametrize("number", [ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER])
@pytest.mark.parametrize("read", [read_content, read_event])
def test_a_key_that_is_there_twice_is_refused(read: Callable[[bytes], object], number: int) -> None:
    pairs = encode(symbol("amount")) + b"\x54\x05" + encode(string("amount")) + b"\x54\x32"
    with pytest.raises(Refusal) as refused:
        read(bytes((0x00, 0x53, number, 0xC1, len(pairs) + 1, 4)) + pairs)
    assert refused.value.condition == DECODE_ERROR


def test_a_rule_that_reads_a_name_in_two_spellings_fails() -> None:
    """Without a rule that reads them, both are kept."""
    rules = (Rule("paid", parse_filter("amount > 1")),)
    subscriptions = (SubscriptionConfig(name="all"), SubscriptionConfig(name="paid", rules=rules))
    config = NamespaceConfig(name="n", topics=(TopicConfig(name="t", subscriptions=subscriptions),))
    namespace = Namespace(config, ManualClock(dt.datetime(2030, 1, 1, tzinfo=dt.UTC)))
    message = application_properties(amount=long(5), Amount=long(5000))
    namespace.topic("t").incoming.accept(read_content(message))
    (kept,) = namespace.store("t/subscriptions/all").peek(0)
    (dead,) = namespace.store("t/subscriptions/paid/$deadletterqueue").peek(0)
    assert kept.content.bare.endswith(message)
    assert b"FilterEvaluationException" in dead.content.bare
