import pytest

from shared.amqp import map_section, values
from shared.amqp.codec import encode
from shared.amqp.scan import compound_content, join_list, list_fields, map_entries, skip, text
from shared.amqp.values import Malformed, Value


def raw_of(text: str) -> bytes:
    return bytes.fromhex(text)


MAP = encode(
    values.map_(
        [
            (values.symbol("x-opt-partition-key"), values.string("a")),
            (Value(0xB1, "wide"), values.NULL),
            (values.ulong(7), values.list_([values.TRUE])),
            (values.described(values.symbol("d"), values.string("described")), values.TRUE),
        ]
    )
)


def test_each_map_entry_has_its_key_and_its_position() -> None:
    entries = map_entries(MAP, 0, len(MAP))
    assert [key for key, _, _, _ in entries] == ["x-opt-partition-key", "wide", None, None]
    assert entries[0] == ("x-opt-partition-key", 9, 30, 33)
    assert [MAP[value_start:stop] for _, _, value_start, stop in entries[:2]] == [b"\xa1\x01a", b"\x40"]
    assert entries[-1][-1] == len(MAP)


@pytest.mark.parametrize(
    ("raw", "key"),
    [("a1 02 c3bc", "ü"), ("a3 01 61", "a"), ("b1 00000002 c3bc", "ü"), ("b3 00000001 61", "a"), ("73 00000061", None)],
)
def test_a_key_is_the_text_of_a_string_or_symbol(raw: str, key: str | None) -> None:
    content = raw_of(raw) + b"\x41"
    [(found, _, _, _)] = map_entries(b"\xc1" + bytes((len(content) + 1, 2)) + content, 0, len(content) + 3)
    assert found == key


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("", "value at byte 0: expected a map"),
        ("c0 01 00", "value at byte 0: expected a map"),
        ("c1 00 00", "its size leaves no room for the count"),
        ("d1 00000003 00000000", "its size leaves no room for the count"),
        ("c1 02 02 40", "2 values, expected at most 1"),
        ("c1 02 01 40", "map: got 1 values up to byte 3, expected pairs up to byte 4"),
        ("c1 04 02 40 40 40", "map: got 2 values up to byte 5, expected pairs up to byte 6"),
        ("c1 03 02 40 50", "value before byte 5: it reaches beyond the end of what holds it"),
        ("c1 05 04 40 50 40 40", "the key at byte 6 leaves no room for a value"),
        ("c1 05 04 40 71 40 40", "reaches beyond the end of what holds it"),
        ("c1 03 02 40 a1", "reaches beyond the end of what holds it"),
        ("c1 03 02 a1 05", "value before byte 5: it reaches beyond the end of what holds it"),
        ("c1 03 02 a1 00", "the key at byte 3 leaves no room for a value"),
        ("c1 04 02 40 40 a1", "map: got 2 values up to byte 5, expected pairs up to byte 6"),
        ("c1 05 04 40 40 40 a1", "reaches beyond the end of what holds it"),
        ("c1 05 04 40 50 07 a1", "reaches beyond the end of what holds it"),
        ("c1 05 03 50 07 50 08", "map: got 3 values up to byte 7, expected pairs up to byte 7"),
        ("c1 05 02 a1 01 ff 41", "map key at byte 3: not valid utf-8"),
        ("c1 05 02 a3 01 ff 41", "map key at byte 3: not valid ascii"),
        ("c1 03 02 01 41", "format code at byte 3: 0x01 is not defined by AMQP 1.0"),
        ("c1 09 00", "reaches beyond the end"),
        ("d1 ffffffff 00000000", "reaches beyond the end"),
    ],
)
def test_an_invalid_map_is_malformed(raw: str, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        map_entries(raw_of(raw), 0, len(raw_of(raw)))


def test_fields_are_the_encoded_items() -> None:
    raw = encode(values.list_([values.string("a"), values.NULL, values.described(values.ulong(1), values.TRUE)]))
    assert list_fields(b"\x00" + raw, 1, 1 + len(raw)) == [b"\xa1\x01a", b"\x40", b"\x00\x53\x01\x41"]
    assert list_fields(b"\x45", 0, 1) == []
    assert list_fields(raw_of("c0 03 02 41 42"), 0, 5) == [b"\x41", b"\x42"]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("", "value at byte 0: expected a list"),
        ("c1 01 00", "value at byte 0: expected a list"),
        ("c0 00 00", "its size leaves no room for the count"),
        ("d0 00000002 0000 0000", "its size leaves no room for the count"),
        ("c0 02 02 40", "2 values, expected at most 1"),
        ("d0 00000005 ffffffff 40", "4294967295 values, expected at most 1"),
        ("c0 03 01 40 40", "list: got 1 values up to byte 4, expected 1 up to byte 5"),
        ("c0 03 02 40 50", "reaches beyond the end of what holds it"),
        ("c0 03 02 50 07", "list: got 1 values up to byte 5, expected 2 up to byte 5"),
    ],
)
def test_an_invalid_list_is_malformed(raw: str, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        list_fields(raw_of(raw), 0, len(raw_of(raw)))


def test_bytes_beyond_the_end_are_not_read() -> None:
    buffer = raw_of("c1 05 02 40 a1 01 61") + raw_of("a1 01 61")
    for end in range(7):
        for scan in (skip, map_entries, list_fields):
            with pytest.raises(Malformed):
                scan(buffer, 0, end)
    assert skip(buffer, 0, 7) == 7
    assert compound_content(buffer, 0, 7) == (2, 3, 7)


@pytest.mark.parametrize(
    ("fields", "raw"),
    [
        ([], "00 53 70 45"),
        ([b"\x40"], "00 53 70 45"),
        ([b"\x40", b"\x41", b"\x40", b"\x40"], "00 53 70 d0 00000006 00000002 40 41"),
        ([b"\xa1\x01\x40"], "00 53 70 d0 00000007 00000001 a1 01 40"),
    ],
)
def test_trailing_nulls_of_a_list_are_omitted(fields: list[bytes], raw: str) -> None:
    given = list(fields)
    assert join_list(b"\x00\x53\x70", fields) == raw_of(raw)
    assert fields == given


def test_many_trailing_nulls_are_removed_in_one_pass() -> None:
    # Quadratic work would keep this busy for minutes.
    assert join_list(b"", [b"\x41"] + [b"\x40"] * 500_000) == encode(values.list_([values.TRUE]))


@pytest.mark.parametrize(
    "raw", ["", "41", "73 00000061", "a0 01 61", "a1", "a1 01 61 40", "a1 02 61", "a1 01 ff", "a3 02 c3bc", "45"]
)
def test_a_field_that_is_not_text_is_malformed(raw: str) -> None:
    with pytest.raises(Malformed):
        text(raw_of(raw))


@pytest.mark.parametrize("code", [0xC1, 0xD1])
@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("count", [0, 2, 3, 9, 10, 13])
def test_the_content_of_a_section_is_read_alike_with_and_without_a_call(code: int, extra: int, count: int) -> None:
    width = 1 if code == 0xC1 else 4
    content = b"\x41" * 9
    size = (len(content) + width + extra).to_bytes(width) + count.to_bytes(width)
    # With another encoding of its descriptor, it is read with calls.
    for prefix in (b"\x00\x53\x74", b"\x00\x80" + (0x74).to_bytes(8)):
        section = prefix + bytes((code,)) + size + content
        start = len(prefix) + 1 + 2 * width
        if extra > 0 or count > len(content) + extra:
            with pytest.raises(Malformed):
                map_section.content(section)
        else:
            assert map_section.content(section) == (count, start, start + len(content) + extra)
