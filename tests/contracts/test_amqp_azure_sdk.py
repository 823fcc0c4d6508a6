"""
What azure-servicebus writes is read by shared/amqp, and what shared/amqp writes is read by azure-servicebus.
"""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp import _decode, _encode
from azure.servicebus._pyamqp.message import Header, Message, Properties
from azure.servicebus._pyamqp.types import AMQPTypes
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp import sections, values
from shared.amqp.codec import decode_all, encode, items_of, pairs_of, plain
from shared.amqp.sections import split
from shared.amqp.values import Array, Malformed, Value
from tests.strategies import of_codes, of_kind, symbols

# The kinds that the SDK's encoder knows; its decoder has no char, no decimal32 and no decimal64.
_scalars = of_kind(
    *("null", "boolean", "ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long", "float", "double"),
    *("timestamp", "uuid", "binary", "string", "symbol"),
)
_keys = st.lists(symbols, max_size=3, unique=True)


# The SDK gets an array wrong that starts with an unsigned zero, see below.
_items = of_codes(0x50, 0x70, 0x71, 0x80, 0x81, 0x82, 0xB1, 0xB3).filter(lambda value: value.payload != 0)


def _array_of_two(value: Value) -> Value:
    return Value(0xF0, Array(value.code, (), (value, value)))


def _nested(children: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        st.lists(children, max_size=4).map(values.list_),
        _keys.flatmap(
            lambda keys: st.tuples(*(children for _ in keys)).map(
                lambda items: values.map_(zip(map(values.string, keys), items, strict=True))
            )
        ),
        _items.map(_array_of_two),
    )


_values = st.recursive(_scalars, _nested, max_leaves=10)


def for_the_encoder(value: Value) -> dict[str, Any]:
    """Return the value in the form that the SDK's encoder takes."""
    content: Any
    match value.payload:
        case Array(_, _, items):
            content = [for_the_encoder(item) for item in items]
        case _ if value.kind == "list":
            content = [for_the_encoder(item) for item in items_of(value)]
        case _ if value.kind == "map":
            content = [(for_the_encoder(key), for_the_encoder(item)) for key, item in pairs_of(value)]
        case other:
            content = other
    return {"TYPE": getattr(AMQPTypes, value.kind), "VALUE": content}


def as_decoded(data: object) -> object:
    """Return plain data as the SDK's decoder gives it: text stays bytes."""
    match data:
        case str():
            return data.encode()
        case list():
            return [as_decoded(item) for item in data]
        case dict():
            return {as_decoded(key): as_decoded(item) for key, item in data.items()}
        case other:
            return other


def kinds(value: Value) -> object:
    """Return the types in the value, whatever their encoding."""
    match value.payload:
        case Array(_, _, items):
            return "array", [kinds(item) for item in items]
        case _ if value.kind == "list":
            return "list", [kinds(item) for item in items_of(value)]
        case _ if value.kind == "map":
            return "map", [(kinds(key), kinds(item)) for key, item in pairs_of(value)]
        case _:
            return value.kind


@given(_values)
def test_a_value_of_the_sdk_is_read_with_its_types_and_comes_back_the_same(value: Value) -> None:
    raw = bytearray()
    _encode.encode_value(raw, for_the_encoder(value))
    decoded = decode_all(bytes(raw))
    assert kinds(decoded) == kinds(value)
    assert repr(plain(decoded)) == repr(plain(value))
    assert encode(decoded) == bytes(raw)


@given(_values)
def test_the_sdk_reads_our_values(value: Value) -> None:
    raw = encode(value)
    rest, decoded = _decode._DECODE_BY_CONSTRUCTOR[raw[0]](memoryview(raw)[1:])
    assert bytes(rest) == b""
    assert repr(decoded) == repr(as_decoded(plain(value)))


def test_an_array_that_the_sdk_gets_wrong_is_malformed_to_decode_and_left_alone_by_split() -> None:
    raw = bytearray()
    zero = {"TYPE": "UINT", "VALUE": 0}
    _encode.encode_value(raw, {"TYPE": "ARRAY", "VALUE": [zero, zero]})
    assert raw == bytes.fromhex("e0 03 02 43 43")
    with pytest.raises(Malformed):
        decode_all(bytes(raw))
    section = b"\x00\x53\x77" + raw
    assert split(section).body == section


def encoded(message: Message) -> bytes:
    return bytes(_encode.encode_payload(bytearray(), message))


SDK_MESSAGE = Message(
    header=Header(durable=True, priority=4, ttl=60_000),
    message_annotations={b"x-opt-partition-key": "key"},
    properties=Properties(message_id="id", user_id=b"user", content_type="text/plain", creation_time=5, group_id="s"),
    application_properties={"integer": 1, "double": 2.5, "uuid": uuid.UUID(int=3), "boolean": True},
    data=[b"{}", bytes(300)],
    footer={"checksum": 1},
)


def test_a_message_of_the_sdk_is_split() -> None:
    raw = encoded(SDK_MESSAGE)
    split_message = split(raw)
    assert split_message.encode() == raw
    assert plain(decode_all(split_message.header)) == [True, 4, 60_000, None, None]
    assert plain(decode_all(split_message.message_annotations)) == {"x-opt-partition-key": "key"}
    properties: Any = plain(decode_all(split_message.properties))
    assert (properties[0], properties[1], properties[10]) == ("id", b"user", "s")
    assert plain(decode_all(split_message.application_properties)) == SDK_MESSAGE.application_properties
    assert [value.payload for _, value in sections.body_parts(split_message.body)] == [b"{}", bytes(300)]
    assert plain(decode_all(split_message.footer)) == {"checksum": 1}


def test_the_sdk_reads_a_split_message_as_before() -> None:
    raw = encoded(SDK_MESSAGE)
    assert _decode.decode_payload(memoryview(split(raw).encode())) == _decode.decode_payload(memoryview(raw))


@pytest.mark.parametrize(
    ("body", "number"), [({"sequence": [[1, "a"], [2]]}, sections.SEQUENCE), ({"value": {"a": 1}}, sections.VALUE)]
)
def test_each_kind_of_body_of_the_sdk_is_split(body: dict[str, Any], number: int) -> None:
    raw = encoded(Message(**body))
    split_message = split(raw)
    assert split_message.encode() == raw
    assert {found for found, _ in sections.body_parts(split_message.body)} == {number}


def test_a_message_as_an_application_makes_it() -> None:
    message = ServiceBusMessage(
        b"{}",
        message_id="id",
        session_id="session",
        time_to_live=timedelta(minutes=2),
        application_properties={"text": "ü", "number": 5, "flag": False},
    )
    split_message = split(encoded(PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message)))
    assert plain(decode_all(split_message.application_properties)) == {"text": "ü", "number": 5, "flag": False}
    header: Any = plain(decode_all(split_message.header))
    assert header[2] == 120_000
    assert split_message.body == sections.data(b"{}")
