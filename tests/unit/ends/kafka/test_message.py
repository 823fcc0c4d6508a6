"""Kafka records as messages: those that Busway wrote come back as they were, those of others are kept."""

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.codec import decode, encode
from shared.amqp.values import NULL, Value, boolean, int_, list_, string, timestamp, ubyte, ulong
from shared.ends.kafka.message import TakenRecord, message_of
from shared.ends.kafka.record import Header, HeaderForm, record_of
from shared.message.message import Message
from shared.protocols import Outgoing
from tests.fidelity.parts import changes, is_same_value, parts
from tests.messages import delivered
from tests.other_brokers.fidelity import ROWS, specimen
from tests.strategies import values

# What docs/kafka.md says is lost.
_LOST = {"body: two data sections", "body: none"}


def taken(*headers: Header, key: bytes | None = None, value: bytes | None = b"body", time: int = 5) -> Message:
    return message_of(TakenRecord(3, 12, time, key, value, headers), "stream", "readings")


def returned(content: bytes, form: HeaderForm, key: str | None = None) -> bytes:
    """Return a message that was sent to Kafka and taken from there."""
    record = record_of(Outgoing(content, None, None, key), form)
    return message_of(TakenRecord(0, 0, 0, record.key, record.value, record.headers), "stream", "readings").encode()


def is_same(before: bytes, after: bytes) -> bool:
    found = changes(parts(before), parts(after))
    return all(is_same_value(place, *pair) for place, pair in found.items())


@pytest.mark.parametrize("form", ["text", "amqp"])
def test_what_was_sent_comes_back_except_what_the_page_calls_lost(form: HeaderForm) -> None:
    assert {row for row in ROWS if not is_same(specimen(row), returned(specimen(row), form))} == _LOST


@given(st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5), values, max_size=4))
def test_properties_come_back_with_their_types(named: dict[str, Value]) -> None:
    content = delivered(None, message_id="m", named={f"p{name}": value for name, value in named.items()})
    assert is_same(content, returned(content, "text"))


@pytest.mark.parametrize("encoded", ["72ff800001", "727fc00000", "82fff0000000000001", "827ff8000000000000"])
def test_each_nan_keeps_its_bits(encoded: str) -> None:
    value, _ = decode(bytes.fromhex(encoded))
    content = delivered(None, message_id="m", named={"p": value})
    assert is_same(content, returned(content, "text"))


@pytest.mark.parametrize("form", ["text", "amqp"])
@pytest.mark.parametrize(
    "name",
    [
        "content-type",
        "repl-types",
        "AMQPheaders",
        "amqp-message-id",
        "amqp-body",
        "amqp-footer",
        "amqp-ttl",
        "amqp-x-opt-partition-key",
        "amqp-x-opt-other",
        "amqp-cloud-event-prefix",
        "amqp-",
        "property:",
        "property:amqp-ttl",
        "property:ce_id",
        "ce_id",
        "cloudEvents_id",
        "cloudEvents:id",
        "Content-Type",
        "kafka-key",
    ],
)
def test_a_property_comes_back_under_any_name(name: str, form: HeaderForm) -> None:
    content = delivered(
        None,
        message_id="m",
        content_type="text/plain",
        named={name: string("mine"), "n": int_(1)},
        annotated={"x-opt-partition-key": string("k"), "x-opt-other": ulong(5)},
    )
    assert is_same(content, returned(content, form, "k"))


def test_events_of_cloud_events_come_back_also_if_names_differ_in_their_prefix_only() -> None:
    named = {"ce_id": int_(1), "cloudEvents:id": int_(2), "cloudEvents_id": int_(3), "cloudEvents:type": string("t")}
    content = delivered(None, message_id="m", named=named)
    assert is_same(content, returned(content, "text"))


def test_a_partition_key_and_an_event_of_cloud_events_come_back() -> None:
    content = delivered(
        None,
        session_id="k",
        named={"cloudEvents:id": string("7"), "n": int_(1)},
        annotated={"x-opt-partition-key": string("k"), "x-opt-other": ulong(5)},
    )
    assert is_same(content, returned(content, "text", "k"))


def test_headers_of_others_become_properties() -> None:
    message = taken(("a", b"text"), ("b", b"\xff\x00"), ("c", None), ("a", b"again"), ("a", b"third"), key=b"press-7")
    assert dict(message.application_properties()) == {
        "a": string("text"),
        # Azure's host passes no binary property to a function.
        "b": string("/wA="),
        "repl-encoding-b": string("base64"),
        "c": NULL,
        "a-2": string("again"),
        "a-3": string("third"),
    }
    assert (message.body, message.partition_key, message.message_id) == (b"body", "press-7", None)


def test_many_headers_of_one_name_take_no_longer_than_others() -> None:
    start = time.process_time()
    message = taken(*[("a", b"")] * 50_000, ("a-7", b"last"))
    assert time.process_time() - start < 5, "minutes if each starts to count at 2"
    names = [name for name, _ in message.application_properties()]
    assert names == ["a", *(f"a-{number}" for number in range(2, 50_001)), "a-7-2"]


def test_where_a_record_was_is_its_arrival() -> None:
    arrival = taken().arrival
    assert tuple(arrival.origin) == ("stream", "readings", "3")
    assert (arrival.sequence_number, arrival.offset, arrival.enqueued_time) == (12, "12", 5)
    # Microseconds by mistake, which is a year beyond 9999.
    assert taken(time=1_900_000_000_000_000).arrival.enqueued_time is None
    assert taken(time=-1).arrival.enqueued_time is None


def test_a_tombstone_is_no_empty_value() -> None:
    assert taken(value=None).sections.body == b"\x00\x53\x77" + encode(NULL)
    assert taken(value=b"").body == b""


@pytest.mark.parametrize("key", [b"\xff\x00", b"k" * 129, b""])
def test_a_key_that_is_no_partition_key_keeps_its_order_and_is_a_property(key: bytes) -> None:
    message, other = taken(key=key), taken(key=key + b"x")
    assert message.partition_key is not None
    assert 0 < len(message.partition_key) <= 128
    assert message.partition_key == taken(key=key).partition_key != other.partition_key
    kept = message.application_property("kafka-key")
    assert kept is not None
    assert kept.payload == ("/wA=" if key == b"\xff\x00" else key.decode())


@pytest.mark.parametrize("key", [b"press-7", "日本".encode(), b"\xff\x00", b"k" * 129, b""])
def test_the_key_of_a_record_is_that_of_the_record_that_is_made_of_it(key: bytes) -> None:
    message = taken(key=key)
    record = record_of(Outgoing(message.encode(), *message.envelope()), "text")
    assert record.key == key
    again = taken(*record.headers, key=record.key)
    assert again.partition_key == message.partition_key
    assert dict(again.application_properties()) == dict(message.application_properties())


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("count", b"seven", "int"),
        ("count", b"300", "ubyte"),
        ("count", b"1e300", "float"),
        ("count", b"\xff", "string"),
        ("count", b"1", "no such type"),
        ("count", b"\xc0", "amqp"),
        ("count", b"2030-03-17T17:46:40", "timestamp"),
        ("count", None, "int"),
        ("amqp-ttl", b"5", "string"),
        ("amqp-footer", b"\x00\x53\x78\xc1\x01", ""),
        ("amqp-x-opt-sequence-number", b"5", "long"),
        ("amqp-x-opt-partition-key", b"5", "int"),
    ],
)
def test_a_header_that_is_not_what_it_is_said_to_be_is_kept_as_it_is(
    name: str, content: bytes | None, kind: str
) -> None:
    message = taken((name, content), ("repl-types", json.dumps({name: kind}).encode()))
    properties = dict(message.application_properties())
    value = properties.pop(name)
    is_text = content not in {b"\xff", b"\xc0", b"\x00\x53\x78\xc1\x01"}
    assert list(properties) == ([] if is_text else [f"repl-encoding-{name}"])
    expected = content if is_text or content is None else base64.b64encode(content)
    assert value.payload == expected or str(value.payload).encode() == expected
    assert Message.received(message.encode(), message.arrival.origin).body == b"body"


@pytest.mark.parametrize("types", [b"[", b"[]", b'{"a": 1}', b"\xff", None])
def test_a_header_repl_types_that_is_none_changes_nothing(types: bytes | None) -> None:
    assert dict(taken(("a", b"1"), ("repl-types", types)).application_properties()) == {"a": string("1")}


@pytest.mark.parametrize("kind", [b"string", b"amqp", b"other"])
def test_a_body_that_is_not_what_it_is_said_to_be_is_data(kind: bytes) -> None:
    assert taken(("amqp-body", kind), value=b"\xff").body == b"\xff"


@pytest.mark.parametrize(("key", "expected"), [(b"press-8", "press-8"), (b"press-7", "press-7"), (None, "press-7")])
def test_a_record_that_got_another_key_on_its_way_has_that_key(key: bytes | None, expected: str) -> None:
    message = taken(("amqp-x-opt-partition-key", b"press-7"), key=key)
    assert message.partition_key == expected
    assert not list(message.application_properties())


def test_a_long_partition_key_that_busway_wrote_comes_back() -> None:
    assert taken(("amqp-x-opt-partition-key", b"k" * 200), key=b"k" * 200).partition_key == "k" * 200


_names = st.sampled_from(
    ["repl-types", "AMQPheaders", "amqp-body", "amqp-footer", "amqp-ttl", "amqp-message-id", "amqp-x", "ce_id", "a", ""]
)
_contents = st.none() | st.binary(max_size=12) | values.map(encode) | st.just(b'{"a": "amqp", "amqp-ttl": "null"}')


@given(st.lists(st.tuples(_names, _contents), max_size=6), st.none() | st.binary(max_size=9), _contents)
def test_any_record_is_a_message_that_can_be_read(
    headers: list[Header], key: bytes | None, value: bytes | None
) -> None:
    message = taken(*headers, key=key, value=value)
    found = Message.received(message.encode(), message.arrival.origin)
    assert len(list(found.application_properties())) == len(list(message.application_properties()))


def test_fields_come_back_with_types_of_their_own() -> None:
    types = {"amqp-message-id": "ulong", "amqp-creation-time": "timestamp"}
    message = taken(
        ("amqp-message-id", b"7"),
        ("amqp-creation-time", b"2030-03-17T17:46:40.123Z"),
        ("amqp-durable", b"true"),
        ("amqp-priority", b"4"),
        ("list", encode(list_([int_(1)]))),
        ("repl-types", json.dumps({**types, "list": "amqp"}).encode()),
    )
    assert message.message_id == ulong(7)
    assert encode(timestamp(1_900_000_000_123)) in message.property_fields()
    assert message.durable == boolean(True)
    assert encode(ubyte(4)) in message.sections.header
    assert message.application_property("list") == list_([int_(1)])


def from_hub(*headers: Header, key: bytes | None = None) -> Message:
    return message_of(TakenRecord(3, 12, 5, key, b"body", headers), "plant", "readings", is_event_hub=True)


def test_an_event_of_an_amqp_sender_that_a_kafka_client_read_has_its_types_again() -> None:
    message = from_hub(
        ("unit", encode(string("C"))),
        ("line", b"TA"),  # the int 65, which could be text
        ("raw", encode(list_([int_(1)]))),
        ("message-id", b"m-1"),
        ("to", b"press"),
        ("creation-time", b"1900000000123"),
        ("content-type", b"text/plain"),
        ("x-opt-partition-key", b"press-7"),
        ("x-opt-offset", b"7"),
    )
    assert dict(message.application_properties()) == {
        "unit": string("C"),
        "line": int_(65),
        "raw": list_([int_(1)]),
    }
    assert (message.message_id, message.to, message.content_type) == (string("m-1"), "press", "text/plain")
    assert encode(timestamp(1_900_000_000_123)) in message.property_fields()
    assert message.partition_key == "press-7"


@pytest.mark.parametrize(
    "headers",
    [
        [("line", b"TA"), ("on", b"A")],
        [("unit", b"C"), ("raw", b"\xff\x00")],
        [("unit", "§".encode())],
    ],
)
def test_headers_of_a_kafka_producer_are_not_taken_for_amqp(headers: list[Header]) -> None:
    assert dict(from_hub(*headers).application_properties()) == dict(taken(*headers).application_properties())


def test_what_busway_wrote_into_a_hub_as_records_comes_back_as_from_a_topic() -> None:
    record = record_of(Outgoing(delivered(None, named={"line": int_(4)}), None, None, "k"), "text")
    assert record.key == b"k"
    assert from_hub(*record.headers, key=record.key).encode() == taken(*record.headers, key=record.key).encode()


@given(st.lists(st.tuples(_names | st.sampled_from(["message-id", "creation-time", "x-opt-x"]), _contents), max_size=6))
def test_any_event_is_a_message_that_can_be_read(headers: list[Header]) -> None:
    message = from_hub(*headers)
    Message.received(message.encode(), message.arrival.origin)
