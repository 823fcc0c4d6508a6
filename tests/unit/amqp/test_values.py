import uuid
from collections.abc import Callable

import pytest

from shared.amqp import values
from shared.amqp.codec import decode_all, encode
from shared.amqp.values import KINDS, Array, Described, Malformed, Value
from shared.errors import BuswayError, MessageRejected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (values.boolean(True), "41"),
        (values.boolean(False), "42"),
        (values.ubyte(0), "50 00"),
        (values.ushort(1), "60 0001"),
        (values.uint(0), "43"),
        (values.uint(1), "52 01"),
        (values.uint(255), "52 ff"),
        (values.uint(256), "70 00000100"),
        (values.ulong(0), "44"),
        (values.ulong(255), "53 ff"),
        (values.ulong(256), "80 0000000000000100"),
        (values.byte(-1), "51 ff"),
        (values.short(-1), "61 ffff"),
        (values.int_(-128), "54 80"),
        (values.int_(127), "54 7f"),
        (values.int_(128), "71 00000080"),
        (values.int_(-129), "71 ffffff7f"),
        (values.long(-128), "55 80"),
        (values.long(128), "81 0000000000000080"),
        (values.float32(1.5), "72 3fc00000"),
        (values.double(1.5), "82 3ff8000000000000"),
        (values.decimal128(bytes(16)), "94" + "00" * 16),
        (values.char("A"), "73 00000041"),
        (values.timestamp(-1), "83 ffffffffffffffff"),
        (values.uuid(uuid.UUID(int=1)), "98" + "00" * 15 + "01"),
        (values.binary(b"a"), "a0 01 61"),
        (values.string("ü"), "a1 02 c3bc"),
        (values.symbol("a"), "a3 01 61"),
        (values.list_([]), "45"),
        (values.list_([values.NULL]), "d0 00000005 00000001 40"),
        (values.map_([]), "d1 00000004 00000000"),
        (values.map_([(values.symbol("a"), values.TRUE)]), "d1 00000008 00000002 a3 01 61 41"),
        (values.described(values.ulong(0x75), values.binary(b"")), "00 53 75 a0 00"),
        (values.array(0xA3, [Value(0xA3, "a"), Value(0xA3, "bc")]), "f0 0000000a 00000002 a3 01 61 02 6263"),
    ],
)
def test_a_constructor_chooses_the_encoding(value: Value, text: str) -> None:
    assert encode(value) == bytes.fromhex(text)
    assert decode_all(bytes.fromhex(text)) == value


@pytest.mark.parametrize(
    ("text", "code"), [("a" * 255, 0xA1), ("a" * 256, 0xB1), ("ü" * 127, 0xA1), ("ü" * 128, 0xB1), ("ü" * 255, 0xB1)]
)
def test_the_length_of_a_string_is_counted_in_bytes(text: str, code: int) -> None:
    value = values.string(text)
    assert value.code == code
    assert decode_all(encode(value)) == value


@pytest.mark.parametrize("length", [0, 255, 256])
def test_the_length_decides_the_encoding_of_binaries_and_symbols(length: int) -> None:
    assert values.binary(bytes(length)).code == (0xA0 if length < 256 else 0xB0)
    assert values.symbol("a" * length).code == (0xA3 if length < 256 else 0xB3)
    assert len(encode(values.symbol("a" * length))) == length + (2 if length < 256 else 5)


@pytest.mark.parametrize(
    ("constructor", "minimum", "maximum"),
    [
        (values.ubyte, 0, 2**8 - 1),
        (values.ushort, 0, 2**16 - 1),
        (values.uint, 0, 2**32 - 1),
        (values.ulong, 0, 2**64 - 1),
        (values.byte, -(2**7), 2**7 - 1),
        (values.short, -(2**15), 2**15 - 1),
        (values.int_, -(2**31), 2**31 - 1),
        (values.long, -(2**63), 2**63 - 1),
        (values.timestamp, -(2**63), 2**63 - 1),
    ],
)
def test_an_integer_out_of_range_is_refused(constructor: Callable[[int], Value], minimum: int, maximum: int) -> None:
    for payload in (minimum, maximum):
        assert decode_all(encode(constructor(payload))).payload == payload
    for payload in (minimum - 1, maximum + 1):
        with pytest.raises(ValueError, match=f"{payload} is out of range, expected {minimum} to {maximum}"):
            constructor(payload)


def test_a_constructor_refuses_a_payload_that_its_type_cannot_hold() -> None:
    with pytest.raises(ValueError, match="got 15 bytes, expected 16"):
        values.decimal128(bytes(15))
    with pytest.raises(ValueError, match="got 2 code points, expected 1"):
        values.char("ab")
    with pytest.raises(ValueError, match="expected ASCII only"):
        values.symbol("ü")
    with pytest.raises(ValueError, match="item has format code 0xa1, expected 0xa3"):
        values.array(0xA3, [Value(0xA1, "a")])


def test_an_array_of_described_items_needs_a_common_descriptor() -> None:
    item = values.described(values.ulong(1), values.TRUE)
    with pytest.raises(ValueError, match="cannot hold"):
        encode(values.array(0x00, [item]))


def test_every_kind_has_a_name_and_an_unassigned_code_is_unknown() -> None:
    assert {Value(code, None).kind for code in range(256)} == {*KINDS.values(), "unknown"}
    assert Value(0x46, b"").kind == "unknown"
    assert Value(0x00, Described(values.NULL, values.NULL)).kind == "described"
    assert Value(0xE0, Array(None, (), ())).kind == "array"


def test_malformed_is_a_rejected_message_with_its_reason() -> None:
    error = Malformed("value at byte 3: too short")
    assert isinstance(error, MessageRejected)
    assert isinstance(error, BuswayError)
    assert (error.reason, error.description) == ("MalformedMessage", "value at byte 3: too short")
