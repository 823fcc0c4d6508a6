import gc
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from shared.amqp import values
from shared.amqp.codec import MAX_DEPTH, MAX_ZERO_WIDTH_ITEMS, decode_all, encode, items_of, pairs_of, plain
from shared.amqp.scan import list_fields, map_entries, skip
from shared.amqp.sections import body_parts, split
from shared.amqp.values import NULL, Array, Described, Malformed, Value


def raw_of(text: str) -> bytes:
    return bytes.fromhex(text)


# Figures of OASIS AMQP 1.0, part 1, sections 1.2 and 1.4: a described string, and a composite with an array in it.
HELLO = b"\x00\xa1\x03URL\xa1\x1ehttp://example.org/hello-world"
BOOK = (
    b"\x00\xa3\x11example:book:list\xc0\x40\x03\xa1\x15AMQP for & by Dummies"
    b"\xe0\x25\x02\xa1\x0eRob J. Godfrey\x13Rafael H. Schloming\x40"
)


def test_the_examples_of_the_specification_are_decoded_and_encoded() -> None:
    hello = decode_all(HELLO)
    assert hello == values.described(values.string("URL"), values.string("http://example.org/hello-world"))
    assert encode(hello) == HELLO

    book = decode_all(BOOK)
    assert isinstance(book.payload, Described)
    assert book.payload.descriptor == values.symbol("example:book:list")
    title, authors, isbn = items_of(book.payload.value)
    assert title == values.string("AMQP for & by Dummies")
    names = (values.string("Rob J. Godfrey"), values.string("Rafael H. Schloming"))
    assert authors == Value(0xE0, Array(0xA1, (), names))
    assert isbn == NULL
    assert encode(book) == BOOK
    assert plain(book) == ["AMQP for & by Dummies", ["Rob J. Godfrey", "Rafael H. Schloming"], None]


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("45", ()),
        ("c0 01 00", ()),
        ("d0 00000004 00000000", ()),
        ("c0 03 02 41 40", (values.TRUE, NULL)),
        ("d0 00000006 00000002 41 40", (values.TRUE, NULL)),
        ("c1 01 00", ()),
        ("d1 00000004 00000000", ()),
        ("c1 04 02 50 07 41", ((values.ubyte(7), values.TRUE),)),
        ("c1 07 04 50 07 41 50 08 42", ((values.ubyte(7), values.TRUE), (values.ubyte(8), values.FALSE))),
        ("e0 01 00", Array(None, (), ())),
        ("f0 00000004 00000000", Array(None, (), ())),
        ("e0 02 00 a1", Array(0xA1, (), ())),
        ("e0 04 02 50 07 08", Array(0x50, (), (values.ubyte(7), values.ubyte(8)))),
        ("f0 00000007 00000002 56 01 00", Array(0x56, (), (Value(0x56, True), Value(0x56, False)))),
        ("e0 02 03 40", Array(0x40, (), (NULL, NULL, NULL))),
        ("e0 02 02 45", Array(0x45, (), (Value(0x45, ()), Value(0x45, ())))),
        ("e0 06 01 00 53 01 50 07", Array(0x50, (values.ulong(1),), (values.ubyte(7),))),
        (
            *("e0 09 01 00 53 01 00 53 02 50 07",),
            Array(0x50, (values.ulong(1), values.ulong(2)), (values.ubyte(7),)),
        ),
        ("e0 05 01 c0 02 01 40", Array(0xC0, (), (Value(0xC0, (NULL,)),))),
        (
            *("e0 08 02 e0 02 01 40 02 00 41",),
            Array(0xE0, (), (Value(0xE0, Array(0x40, (), (NULL,))), Value(0xE0, Array(0x41, (), ())))),
        ),
        ("00 40 00 41 42", Described(NULL, Value(0x00, Described(values.TRUE, values.FALSE)))),
        ("00 00 40 41 42", Described(Value(0x00, Described(NULL, values.TRUE)), values.FALSE)),
    ],
)
def test_compounds_arrays_and_described_values(text: str, payload: Any) -> None:
    raw = raw_of(text)
    assert decode_all(raw) == Value(raw[0], payload)
    assert encode(Value(raw[0], payload)) == raw
    assert skip(raw, 0, len(raw)) == len(raw)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("c0 00 00", "size at byte 1: 0 bytes, expected 1 to 1"),
        ("c0 02 00", "size at byte 1: 2 bytes, expected 1 to 1"),
        ("c0", "size and count at byte 1: needs 2 bytes, the data has 0"),
        ("d0 00000004", "size and count at byte 1: needs 8 bytes, the data has 4"),
        ("d0 00000003 00000000", "size at byte 1: 3 bytes, expected 4 to 4"),
        ("d0 ffffffff 00000000", "size at byte 1: 4294967295 bytes"),
        ("c0 02 02 40", "count at byte 1: 2, expected at most 1"),
        ("c0 03 01 40 40", "its 1 values end at byte 4, its size at byte 5"),
        ("c0 02 01 41 41", "1 bytes are left after it"),
        ("c0 03 02 40 50", "value at byte 5: needs 1 bytes, the data has 0"),
        ("c1 02 01 40", "count at byte 1: 1, expected an even number up to 1"),
        ("c1 03 02 40 01", "format code at byte 4: 0x01 is not defined by AMQP 1.0"),
        ("e0 01 01", "array constructor at byte 3: needs 1 bytes, the data has 0"),
        ("e0 03 01 00 40", "array constructor at byte 5: needs 1 bytes"),
        ("e0 02 00 01", "format code at byte 3: 0x01 is not defined by AMQP 1.0"),
        ("e0 03 02 50 07", "array at byte 3: 2 items, expected at most 1"),
        ("e0 04 01 50 07 08", "its 1 items end at byte 5, its size at byte 6"),
        ("e0 03 01 40 40", "its 1 items end at byte 4, its size at byte 5"),
        ("00", "value at byte 1: the data ends there"),
        ("00 40", "value at byte 2: the data ends there"),
    ],
)
def test_malformed_compounds_are_refused_with_where_and_what(text: str, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        decode_all(raw_of(text))


# Limits

NESTINGS = {
    "described value": lambda depth: b"\x00\x40" * depth + b"\x40",
    "described descriptor": lambda depth: b"\x00" * depth + b"\x40" * (depth + 1),
    "array descriptors": lambda depth: b"\xe0" + bytes((3 + 2 * depth, 1)) + b"\x00\x40" * depth + b"\x50\x07",
}


def list_in_lists(depth: int) -> bytes:
    raw = b"\x45"
    for _ in range(depth):
        raw = b"\xd0" + (len(raw) + 4).to_bytes(4) + (1).to_bytes(4) + raw
    return raw


def map_in_maps(depth: int) -> bytes:
    raw = b"\x40"
    for _ in range(depth):
        raw = b"\xd1" + (len(raw) + 5).to_bytes(4) + (2).to_bytes(4) + b"\x40" + raw
    return raw


def array_in_arrays(depth: int) -> bytes:
    body = b""
    for number in range(depth):
        constructor = b"\x40" if number == 0 else b"\xf0"
        body = (len(body) + 5).to_bytes(4) + (1).to_bytes(4) + constructor + body
    return b"\xf0" + body


NESTINGS |= {"list": list_in_lists, "map": map_in_maps, "array": array_in_arrays}


@pytest.mark.parametrize("nesting", NESTINGS)
def test_nesting_is_limited(nesting: str) -> None:
    deepest = NESTINGS[nesting](MAX_DEPTH)
    value = decode_all(deepest)
    assert encode(value) == deepest
    plain(value)
    hash(value)
    with pytest.raises(Malformed, match=f"nested more than {MAX_DEPTH} levels deep"):
        decode_all(NESTINGS[nesting](MAX_DEPTH + 1))


@pytest.mark.parametrize(
    "unit", ["00", "00 40", "00 53 77", "c0 ff 01", "c1 ff 02", "e0 ff 01", "d0 000000ff 00000001"]
)
def test_endless_nesting_is_malformed_and_not_a_recursion_error(unit: str) -> None:
    raw = raw_of(unit) * 20_000
    for read in (decode_all, split, body_parts):
        with pytest.raises(Malformed):
            read(raw)


def bottomless(constructor: bytes, levels: int) -> bytes:
    raw = b""
    for _ in range(levels):
        raw = constructor + (len(raw) + 4).to_bytes(4) + (1 if raw else 0).to_bytes(4) + raw
    return raw


def test_the_scanner_skips_valid_nesting_beyond_the_limit() -> None:
    raw = bottomless(b"\xd0", 5_000)
    assert skip(raw, 0, len(raw)) == len(raw)
    assert split(b"\x00\x53\x77" + raw).body == b"\x00\x53\x77" + raw
    with pytest.raises(Malformed, match="nested more than"):
        decode_all(raw)


@pytest.mark.parametrize("text", ["40", "41", "43", "44", "45", "4f"])
def test_items_that_need_no_bytes_are_limited(text: str) -> None:
    most = raw_of("e0 02") + bytes((MAX_ZERO_WIDTH_ITEMS,)) + raw_of(text)
    assert plain(decode_all(most)) == [plain(decode_all(raw_of(text)))] * MAX_ZERO_WIDTH_ITEMS
    assert encode(decode_all(most)) == most
    for raw in (
        raw_of("e0 02") + bytes((MAX_ZERO_WIDTH_ITEMS + 1,)) + raw_of(text),
        raw_of("f0 00000005 ffffffff") + raw_of(text),
    ):
        with pytest.raises(Malformed, match=f"items, expected at most {MAX_ZERO_WIDTH_ITEMS}"):
            decode_all(raw)


SIZE = 5_000


def list32(count: int, content: bytes) -> bytes:
    return b"\xd0" + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content


def array32(count: int, content: bytes) -> bytes:
    return b"\xf0" + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content


HOSTILE = {
    "a length of 4 GB": raw_of("b0 ffffffff"),
    "a list of 4 billion": raw_of("d0 00000004 ffffffff"),
    "a list of 4 billion in 4 GB": raw_of("d0 ffffffff ffffffff"),
    "a map of 4 billion": raw_of("d1 00000004 fffffffe"),
    "an array of 4 billion": raw_of("f0 00000005 ffffffff 50"),
    "an array of 4 billion nulls": raw_of("f0 00000005 ffffffff 40"),
    "nulls": list32(SIZE, b"\x40" * SIZE),
    "a null too few": list32(SIZE, b"\x40" * (SIZE - 1) + b"\x50"),
    "empty texts": list32(SIZE // 2, b"\xa1\x00" * (SIZE // 2)),
    "empty lists": list32(SIZE // 3, b"\xc0\x01\x00" * (SIZE // 3)),
    "empty maps": list32(SIZE // 3, b"\xc1\x01\x00" * (SIZE // 3)),
    "small maps": list32(SIZE // 5, b"\xc1\x03\x02\x40\x40" * (SIZE // 5)),
    "pairs": b"\xd1" + (SIZE + 4).to_bytes(4) + SIZE.to_bytes(4) + b"\x40" * SIZE,
    "described nulls": list32(SIZE // 3, b"\x00\x40\x40" * (SIZE // 3)),
    "bytes of an array": array32(SIZE, b"\x50" + b"\x01" * SIZE),
    "arrays of many nulls": array32(SIZE // 3, b"\xe0" + bytes((2, MAX_ZERO_WIDTH_ITEMS, 0x40)) * (SIZE // 3)),
    "descriptors of an array": array32(0, b"\x00\x40" * (SIZE // 2)),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_memory_is_bounded_by_the_length_of_the_input(hostile: str) -> None:
    raw = HOSTILE[hostile]

    def read() -> None:
        with suppress(Malformed):
            plain(decode_all(raw))
        with suppress(Malformed):
            assert encode(decode_all(raw)) == raw
        for scan in (skip, map_entries, list_fields):
            with suppress(Malformed):
                scan(raw, 0, len(raw))

    read()
    gc.collect()
    tracemalloc.start()
    try:
        read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30_000 + 300 * len(raw)


# Plain data and what values hold


def test_plain_data_has_no_types_or_descriptors() -> None:
    value = values.map_(
        [
            (values.symbol("a"), values.list_([values.int_(1), values.long(2), NULL])),
            (values.string("b"), values.described(values.ulong(7), values.double(0.5))),
            (values.ubyte(1), values.array(0x50, [values.ubyte(7)])),
        ]
    )
    assert plain(value) == {"a": [1, 2, None], "b": 0.5, 1: [7]}


@pytest.mark.parametrize(
    "key",
    [
        values.list_([NULL]),
        values.map_([]),
        values.array(0x50, []),
        values.described(NULL, values.list_([])),
        values.map_([(values.list_([]), NULL)]),
    ],
)
def test_an_unhashable_key_stays_a_value(key: Value) -> None:
    assert plain(values.map_([(key, values.TRUE)])) == {key: True}


def test_only_lists_have_items_and_only_maps_have_pairs() -> None:
    assert items_of(values.list_([NULL])) == (NULL,)
    assert items_of(Value(0x45, ())) == ()
    assert pairs_of(values.map_([(NULL, NULL)])) == ((NULL, NULL),)
    with pytest.raises(Malformed, match="got a map, expected a list"):
        items_of(values.map_([]))
    with pytest.raises(Malformed, match="got a string, expected a map"):
        pairs_of(values.string("a"))


@pytest.mark.parametrize(
    ("code", "payload"),
    [
        (0x00, NULL),
        (0xC0, None),
        (0xC0, "ab"),
        (0xC0, (1, 2)),
        (0xC0, (NULL,) * 256),
        (0xC0, (values.binary(bytes(255)),)),
        (0xC1, (NULL, NULL)),
        (0xC1, ((NULL, NULL, NULL),)),
        (0xE0, ()),
        (0xE0, Array(0x50, (), (values.ubyte(7), values.byte(7)))),
        (0xE0, Array(None, (), (NULL,))),
        (0xE0, Array(0x00, (), ())),
        (0xE0, Array(0x50, (), (Value(0x50, 256),))),
        (0xE0, Array(0x01, (), (Value(0x01, b""),))),
        (0xE0, Array(0xB0, (), (values.binary(bytes(300)),))),
        (0xD0, (Value(0x50, "a"),)),
    ],
)
def test_a_value_that_could_not_be_decoded_again_is_not_encoded(code: int, payload: Any) -> None:
    with pytest.raises(ValueError, match=r"cannot hold|unpack"):
        encode(Value(code, payload))


def test_an_error_of_the_encoder_does_not_show_the_content() -> None:
    with pytest.raises(ValueError, match="cannot hold this str") as raised:
        encode(Value(0xA1, "secret" * 100))
    assert "secret" not in str(raised.value)
