from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp import sections
from shared.amqp.codec import decode_all, encode
from shared.amqp.decimals import repaired
from shared.amqp.values import Value, array, binary, decimal128, described, int_, list_, map_, string, symbol
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.rules.decimals import decimal_of
from tests import strategies

RIGHT = bytes.fromhex("30400000000000000000000000003039")
WRONG = bytes.fromhex("0c400000000000000000000000003039")
NEGATIVE = bytes.fromhex("b03c0000000000000000000000003039")
WRONG_NEGATIVE = bytes.fromhex("8c3c0000000000000000000000003039")
# The first as a decimal, the second as text and as a binary, which are left alone.
SAMPLE = b"\x94" + WRONG


def values_with(first: bytes, second: bytes) -> list[Value]:
    return [
        decimal128(first),
        list_([int_(1), decimal128(second), list_([decimal128(first)])]),
        map_([(string("price"), decimal128(first)), (decimal128(second), string("key"))]),
        described(symbol("unit"), decimal128(second)),
    ]


@pytest.mark.parametrize(
    ("wrong", "right"),
    list(zip(values_with(WRONG, WRONG_NEGATIVE), values_with(RIGHT, NEGATIVE), strict=True)),
    ids=["decimal", "list", "map", "described"],
)
def test_decimals_of_dotnet_get_the_right_exponent_wherever_they_are(wrong: Value, right: Value) -> None:
    assert repaired(encode(wrong)) == encode(right)
    assert repaired(encode(right)) == encode(right)


@pytest.mark.parametrize(
    "value",
    [
        binary(SAMPLE),
        string("\x94" + "\x0c@"),
        decimal128(b"\x0c\x42" + WRONG[2:]),  # an exponent of +1 beside the first byte of .NET
        decimal128(b"\x0c\x06" + WRONG[2:]),  # 29 decimal places
        decimal128(b"\x0c\x40\x00\x01" + WRONG[4:]),  # more than 96 bits
        decimal128(b"\x0d\x40" + WRONG[2:]),
        array(0x94, [decimal128(WRONG)]),  # .NET writes no array of decimals
    ],
)
def test_a_decimal_that_dotnet_cannot_have_written_is_not_changed(value: Value) -> None:
    assert repaired(encode(value)) == encode(value)


@given(strategies.damaged(st.just(encode(map_([(string("a"), decimal128(WRONG)), (string("b"), binary(SAMPLE))])))))
def test_malformed_sections_are_repaired_or_returned_as_they_are(content: bytes) -> None:
    assert len(repaired(content)) == len(content)


@given(strategies.of_kind("list", "map", "string", "binary", "uuid", "decimal128"))
def test_only_the_bytes_of_exponents_change(value: Value) -> None:
    before = encode(value)
    after = repaired(before)
    changed = [at for at, (left, right) in enumerate(zip(before, after, strict=True)) if left != right]
    assert {(before[at - 1], before[at], after[at]) for at in changed} <= {(0x94, 0x0C, 0x30), (0x94, 0x8C, 0xB0)}
    assert repaired(after) == after
    decode_all(after)


def test_a_received_message_has_the_decimals_of_its_source_everywhere() -> None:
    def message(decimal: bytes) -> bytes:
        def section(number: int, key: Value) -> bytes:
            return b"\x00\x53%c%b" % (number, encode(map_([(key, decimal128(decimal))])))

        return (
            section(sections.DELIVERY_ANNOTATIONS, symbol("d"))
            + section(sections.MESSAGE_ANNOTATIONS, symbol("a"))
            + section(sections.APPLICATION_PROPERTIES, string("p"))
            + b"\x00\x53\x77"
            + encode(list_([decimal128(decimal)]))
            + section(sections.FOOTER, symbol("f"))
        )

    origin = Origin("west", "orders")
    received = Message.received(message(WRONG), origin)
    assert received.encode() == Message.received(message(RIGHT), origin).encode()
    price = received.application_property("p")
    assert price is not None
    assert isinstance(price.payload, bytes)
    assert decimal_of(price.kind, price.payload) == Decimal(12345)


def test_a_data_body_is_not_searched() -> None:
    data = sections.data(SAMPLE)
    assert Message.received(data, Origin("west", "orders")).encode() == data
