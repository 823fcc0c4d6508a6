import math
import struct
import uuid
from typing import Any

import pytest

from shared.amqp.codec import decode_all, encode
from shared.amqp.values import KINDS, Malformed, Value

# Every encoding of a primitive in OASIS AMQP 1.0, part 1, section 1.6, by hand.
ENCODINGS = [
    ("null", "40", None),
    ("boolean", "41", True),
    ("boolean", "42", False),
    ("boolean", "56 01", True),
    ("boolean", "56 00", False),
    ("ubyte", "50 00", 0),
    ("ubyte", "50 ff", 255),
    ("ushort", "60 0000", 0),
    ("ushort", "60 ffff", 65535),
    ("ushort", "60 0102", 258),
    ("uint", "43", 0),
    ("uint", "52 00", 0),
    ("uint", "52 ff", 255),
    ("uint", "70 00000000", 0),
    ("uint", "70 000000ff", 255),
    ("uint", "70 ffffffff", 2**32 - 1),
    ("ulong", "44", 0),
    ("ulong", "53 00", 0),
    ("ulong", "53 ff", 255),
    ("ulong", "80 0000000000000000", 0),
    ("ulong", "80 0102030405060708", 0x0102030405060708),
    ("ulong", "80 ffffffffffffffff", 2**64 - 1),
    ("byte", "51 7f", 127),
    ("byte", "51 80", -128),
    ("byte", "51 ff", -1),
    ("short", "61 7fff", 32767),
    ("short", "61 8000", -32768),
    ("int", "54 7f", 127),
    ("int", "54 80", -128),
    ("int", "71 00000001", 1),
    ("int", "71 7fffffff", 2**31 - 1),
    ("int", "71 80000000", -(2**31)),
    ("long", "55 7f", 127),
    ("long", "55 80", -128),
    ("long", "81 0000000000000001", 1),
    ("long", "81 7fffffffffffffff", 2**63 - 1),
    ("long", "81 8000000000000000", -(2**63)),
    ("float", "72 00000000", 0.0),
    ("float", "72 3f800000", 1.0),
    ("float", "72 c0490fdb", -3.1415927410125732),
    ("float", "72 00000001", 2.0**-149),
    ("float", "72 7f800000", math.inf),
    ("float", "72 ff800000", -math.inf),
    ("double", "82 3ff0000000000000", 1.0),
    ("double", "82 400921fb54442d18", math.pi),
    ("double", "82 0000000000000001", 5e-324),
    ("double", "82 fff0000000000000", -math.inf),
    ("decimal32", "74 22500001", bytes.fromhex("22500001")),
    ("decimal64", "84 2238000000000001", bytes.fromhex("2238000000000001")),
    ("decimal128", "94 22080000000000000000000000000001", bytes.fromhex("22080000000000000000000000000001")),
    ("char", "73 00000000", "\0"),
    ("char", "73 00000041", "A"),
    ("char", "73 0000d83d", "\ud83d"),
    ("char", "73 0001f600", "\U0001f600"),
    ("char", "73 0010ffff", "\U0010ffff"),
    ("timestamp", "83 0000000000000000", 0),
    ("timestamp", "83 0000013167adb8a1", 1311704463521),
    ("timestamp", "83 ffffffffffffffff", -1),
    ("timestamp", "83 8000000000000000", -(2**63)),
    (
        *("uuid", "98 f81d4fae7dec11d0a76500a0c91e6bf6"),
        uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    ),
    ("binary", "a0 00", b""),
    ("binary", "a0 02 00ff", b"\x00\xff"),
    ("binary", "b0 00000000", b""),
    ("binary", "b0 00000002 00ff", b"\x00\xff"),
    ("string", "a1 00", ""),
    ("string", "a1 03 c3bc00", "ü\0"),
    ("string", "b1 00000004 f09f9880", "\U0001f600"),
    ("symbol", "a3 00", ""),
    ("symbol", "a3 03 61627f", "ab\x7f"),
    ("symbol", "b3 00000001 61", "a"),
    ("list", "45", ()),
]


@pytest.mark.parametrize(("kind", "text", "payload"), ENCODINGS)
def test_each_encoding_is_read_and_written_as_the_specification_says(kind: str, text: str, payload: Any) -> None:
    raw = bytes.fromhex(text)
    value = decode_all(raw)
    assert value.kind == kind
    assert value.code == raw[0]
    assert value.payload == payload
    assert type(value.payload) is type(payload)
    assert encode(Value(raw[0], payload)) == raw


def test_the_table_has_every_primitive_of_the_specification() -> None:
    compounds = {0x00, 0xC0, 0xD0, 0xC1, 0xD1, 0xE0, 0xF0}
    assert {int(text[:2], 16) for _, text, _ in ENCODINGS} == set(KINDS) - compounds


@pytest.mark.parametrize("text", sorted({text for _, text, _ in ENCODINGS}))
def test_each_encoding_is_malformed_with_a_trailing_byte(text: str) -> None:
    with pytest.raises(Malformed, match="1 bytes are left after it, expected none"):
        decode_all(bytes.fromhex(text) + b"\x40")


@pytest.mark.parametrize(
    "bits",
    [0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FC00001, 0x7FFFFFFF, 0xFF800001, 0xFFC00000, 0xFFFFFFFF, 0x80000000],
)
def test_a_float_keeps_its_bits(bits: int) -> None:
    raw = b"\x72" + bits.to_bytes(4)
    payload: Any = decode_all(raw).payload
    assert encode(Value(0x72, payload)) == raw
    if bits == 0x80000000:
        assert math.copysign(1, payload) == -1
    else:
        assert math.isnan(payload)


@pytest.mark.parametrize(
    "bits", [0x7FF0000000000001, 0x7FF8000000000000, 0xFFF7FFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 1 << 63]
)
def test_a_double_keeps_its_bits(bits: int) -> None:
    raw = b"\x82" + bits.to_bytes(8)
    assert encode(decode_all(raw)) == raw


def test_a_nan_whose_payload_does_not_fit_a_float_stays_a_nan() -> None:
    nan = struct.unpack(">d", bytes.fromhex("7ff0000000000001"))[0]
    assert encode(Value(0x72, nan)) == bytes.fromhex("72 7f800001")
    assert encode(Value(0x72, -math.nan))[:2] == bytes.fromhex("72 ff")


def test_a_number_that_a_float_cannot_represent_is_rounded() -> None:
    assert encode(Value(0x72, 0.1)) == bytes.fromhex("72 3dcccccd")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("56 02", "boolean at byte 1: 0x02, expected 0x00 or 0x01"),
        ("56 ff", "boolean at byte 1: 0xff"),
        ("73 00110000", "char at byte 1: 0x110000 is not a Unicode code point"),
        ("73 ffffffff", "char at byte 1: 0xffffffff is not a Unicode code point"),
        ("a1 01 ff", "text at byte 2: not valid utf-8"),
        ("a1 03 eda080", "text at byte 2: not valid utf-8"),
        ("a1 02 c080", "text at byte 2: not valid utf-8"),
        ("b1 00000001 80", "text at byte 5: not valid utf-8"),
        ("a3 02 c3bc", "text at byte 2: not valid ascii"),
        ("b3 00000001 80", "text at byte 5: not valid ascii"),
        ("a0 05 00", "value at byte 2: needs 5 bytes, the data has 1"),
        ("b0 000000", "length at byte 1: needs 4 bytes, the data has 3"),
        ("83 00", "value at byte 1: needs 8 bytes, the data has 1"),
        ("72", "float at byte 1: needs 4 bytes, the data has 0"),
        ("", "value at byte 0: the data ends there, expected a format code"),
    ],
)
def test_malformed_bytes_are_refused_with_where_and_what(text: str, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        decode_all(bytes.fromhex(text))


@pytest.mark.parametrize("code", [*range(0x01, 0x40)])
def test_a_format_code_below_0x40_is_malformed(code: int) -> None:
    with pytest.raises(Malformed, match=f"format code at byte 0: 0x{code:02x} is not defined by AMQP 1.0"):
        decode_all(bytes((code,)) + bytes(20))
    with pytest.raises(ValueError, match="cannot hold"):
        encode(Value(code, b""))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("46", ""),
        ("4f", ""),
        ("57 01", "01"),
        ("62 0102", "0102"),
        ("75 01020304", "01020304"),
        ("85 0102030405060708", "0102030405060708"),
        ("95 0102030405060708090a0b0c0d0e0f10", "0102030405060708090a0b0c0d0e0f10"),
        ("a2 02 0102", "0102"),
        ("b2 00000002 0102", "0102"),
        ("c2 03 010203", "010203"),
        ("d2 00000003 010203", "010203"),
        ("e1 02 0140", "0140"),
        ("f1 00000002 0140", "0140"),
    ],
)
def test_an_unassigned_format_code_is_kept_as_bytes(text: str, content: str) -> None:
    raw = bytes.fromhex(text)
    value = decode_all(raw)
    assert (value.kind, value.payload) == ("unknown", bytes.fromhex(content))
    assert encode(value) == raw
    with pytest.raises(Malformed):
        decode_all(raw[:-1])


OF_EACH_KIND: list[Any] = [
    *(None, True, False, 0, 1, -1, 256, 2**16, 2**32, 2**64, 0.5, math.nan, 1e300, "", "a", "ab", "ü", "\ud800"),
    *(b"", b"a", bytes(4), bytes(300), (), (1,), uuid.UUID(int=1), object(), [], {}),
]


@pytest.mark.parametrize("code", sorted(KINDS))
def test_a_payload_that_does_not_fit_its_format_code_raises_value_error(code: int) -> None:
    for payload in OF_EACH_KIND:
        try:
            raw = encode(Value(code, payload))
        except ValueError:
            continue
        decoded = decode_all(raw)
        assert decoded.code == code
        assert decoded.payload == payload or math.isnan(payload)


@pytest.mark.parametrize(
    ("code", "payload"),
    [
        *[(0x40, False), (0x41, False), (0x42, True), (0x43, 1), (0x44, 7), (0x45, (Value(0x40, None),))],
        *[(0x56, 1), (0x56, None), (0x50, 256), (0x50, -1), (0x51, 128), (0x60, 65536), (0x80, 2**64), (0x81, 2**63)],
        *[(0x72, 1e39), (0x72, "1"), (0x73, ""), (0x73, "ab"), (0x73, 65), (0x74, bytes(5)), (0x94, bytes(15))],
        *[(0x98, bytes(16)), (0xA0, bytes(256)), (0xA0, "a"), (0xA1, "a" * 256), (0xA1, b"a"), (0xA1, "\ud800")],
        *[(0xA3, "ü"), (0xA3, "a" * 256), (0xB0, bytearray(1)), (0xB3, "\x80"), (0x57, b""), (0x57, "a")],
    ],
)
def test_a_payload_that_would_be_decoded_differently_is_refused(code: int, payload: Any) -> None:
    with pytest.raises(ValueError, match=f"AMQP format code 0x{code:02x} cannot hold this {type(payload).__name__}"):
        encode(Value(code, payload))
