"""Messages as Kafka records, and how a reader gets the values of headers back."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.codec import decode_all, encode
from shared.amqp.values import (
    NULL,
    Value,
    binary,
    boolean,
    decimal128,
    described,
    double,
    int_,
    list_,
    long,
    map_,
    string,
    symbol,
    timestamp,
)
from shared.amqp.values import uuid as uuid_
from shared.ends.kafka.record import Record, header_of, record_of
from shared.errors import MessageRejected
from shared.protocols import Outgoing
from tests.kafka_reader import parts_of, value_of
from tests.messages import delivered
from tests.strategies import values

DATA = b"\x00\x53\x75\xa0"
VALUE = b"\x00\x53\x77"


def outgoing(content: bytes, session_id: str | None = None, partition_key: str | None = None) -> Outgoing:
    return Outgoing(content, None, session_id, partition_key)


def headers_of(record: Record) -> dict[str, bytes | None]:
    found = dict(record.headers)
    assert len(found) == len(record.headers)
    return found


@given(values)
def test_every_value_comes_back_from_its_header_with_its_type(value: Value) -> None:
    content, kind = header_of(encode(value))
    found = value_of(content, kind)
    assert found.kind == value.kind
    assert repr(found.payload) == repr(value.payload)  # as text, because of NaN


@given(st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5), values, max_size=4))
def test_properties_come_back_from_their_headers_by_the_shape_of_their_section(named: dict[str, Value]) -> None:
    content = delivered(None, named={f"p{name}": value for name, value in named.items()})
    # The second time, the shape of the section is known.
    for record in [record_of(outgoing(content), "text") for _ in range(2)]:
        found = parts_of(record.value, dict(record.headers))
        assert record.value == b"body"
        for name, value in named.items():
            same = decode_all(found[f"property p{name}"])
            assert (same.kind, repr(same.payload)) == (value.kind, repr(value.payload))


@pytest.mark.parametrize(
    ("value", "header", "kind"),
    [
        (string("ü"), "ü".encode(), "string"),
        (long(-5), b"-5", "long"),
        (boolean(True), b"true", "boolean"),
        (double(float("inf")), b"Infinity", "double"),
        (timestamp(1_900_000_000_123), b"2030-03-17T17:46:40.123Z", "timestamp"),
        (timestamp(2**62), encode(timestamp(2**62)), "amqp"),
        (binary(b"\x00\xff"), b"\x00\xff", "binary"),
        (NULL, None, "null"),
        (decimal128(bytes(16)), encode(decimal128(bytes(16))), "amqp"),
        (list_([int_(1)]), encode(list_([int_(1)])), "amqp"),
        (described(symbol("u"), string("v")), encode(described(symbol("u"), string("v"))), "amqp"),
    ],
)
def test_a_header_is_what_the_page_shows(value: Value, header: bytes | None, kind: str) -> None:
    assert header_of(encode(value)) == (header, kind)


def test_a_message_becomes_key_value_and_headers() -> None:
    content = delivered(
        None,
        message_id="m",
        session_id="s",
        content_type="text/plain",
        correlation_id=uuid_(uuid.UUID(int=1)),
        named={"name": string("n"), "count": int_(7), "cloudEvents:id": string("7"), "map": map_([])},
        annotated={"x-opt-partition-key": string("s")},
        time_to_live=5,
    )
    record = record_of(outgoing(content, "s", "s"), "text")
    headers = headers_of(record)
    assert (record.key, record.value) == (b"s", b"body")
    assert json.loads(headers.pop("repl-types") or b"") == {
        "count": "int",
        "map": "amqp",
        "amqp-correlation-id": "uuid",
    }
    assert headers == {
        "name": b"n",
        "count": b"7",
        "ce_id": b"7",
        "map": encode(map_([])),
        "amqp-x-opt-partition-key": b"s",
        "amqp-durable": b"true",
        "amqp-ttl": b"5",
        "amqp-message-id": b"m",
        "content-type": b"text/plain",
        "amqp-correlation-id": b"00000000-0000-0000-0000-000000000001",
        "amqp-group-id": b"s",
    }


def test_the_form_amqp_has_the_encoding_of_every_value_and_says_so() -> None:
    content = delivered(None, message_id=None, named={"count": int_(7), "cloudEvents:id": string("7")})
    headers = headers_of(record_of(outgoing(content), "amqp"))
    assert headers["count"] == encode(int_(7))
    assert headers["cloudEvents:id"] == encode(string("7"))
    assert "AMQPheaders" in headers
    assert "repl-types" not in headers


@pytest.mark.parametrize(
    ("session_id", "partition_key", "key"),
    [(None, None, None), ("", "", None), ("s", None, b"s"), (None, "p", b"p"), ("s", "p", b"p")],
)
def test_the_key_is_the_partition_key_or_the_session(
    session_id: str | None, partition_key: str | None, key: bytes | None
) -> None:
    assert record_of(outgoing(delivered(None), session_id, partition_key), "text").key == key


@pytest.mark.parametrize(
    ("body", "value", "kind"),
    [
        (DATA + b"\x02ab", b"ab", None),
        (DATA + b"\x00", b"", None),
        (b"", b"", None),
        (DATA + b"\x01a" + DATA + b"\x01b", b"ab", None),
        (VALUE + encode(string("text")), b"text", b"string"),
        (VALUE + encode(binary(b"\x00")), b"\x00", b"binary"),
        (VALUE + b"\x40", None, None),
        (VALUE + encode(int_(5)), VALUE + encode(int_(5)), b"amqp"),
        (b"\x00\x53\x76" + encode(list_([])), b"\x00\x53\x76" + encode(list_([])), b"amqp"),
    ],
)
def test_a_body_becomes_a_value(body: bytes, value: bytes | None, kind: bytes | None) -> None:
    record = record_of(outgoing(body), "text")
    assert record.value == value
    assert dict(record.headers).get("amqp-body") == kind


def test_a_name_that_kafka_would_cut_is_rejected() -> None:
    with pytest.raises(MessageRejected, match="zero character"):
        record_of(outgoing(delivered(None, named={"a\0b": string("v")})), "text")
