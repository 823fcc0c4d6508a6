from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.codec import decode_all, encode
from shared.amqp.scan import join_list, join_map, list_fields, map_entries
from shared.amqp.sections import DATA, NAMES, SEQUENCE, VALUE, body_parts, data, descriptor, split
from shared.amqp.values import Described, Malformed, Value
from tests import strategies
from tests.fuzz import amqp

encoded = strategies.messages.map(lambda sections: sections.encode())


@given(strategies.messages, st.binary(max_size=8))
def test_a_message_is_split_into_its_sections_and_joined_again(sections: Any, before: bytes) -> None:
    raw = sections.encode()
    assert split(raw) == sections
    assert split(before + raw, len(before)) == sections


@given(strategies.messages)
def test_the_descriptor_names_the_section_and_says_where_its_content_starts(sections: Any) -> None:
    for name in NAMES.values():
        section = getattr(sections, name.replace("-", "_"), b"")
        if section:
            number, position = descriptor(section, 0)
            assert NAMES[number] == name
            whole = decode_all(section).payload
            assert isinstance(whole, Described)
            assert section[position:] == encode(whole.value)


@given(strategies.bodies)
def test_body_parts_have_one_kind_and_contain_the_whole_body(body: bytes) -> None:
    parts = body_parts(body)
    assert len({number for number, _ in parts}) == (1 if body else 0)
    assert all(value.kind == {DATA: "binary", SEQUENCE: "list"}.get(number, value.kind) for number, value in parts)
    assert all(number in (DATA, SEQUENCE, VALUE) for number, _ in parts)
    assert body.endswith(encode(parts[-1][1]) if parts else b"")


@given(st.binary(max_size=600))
def test_a_data_section_holds_its_content(content: bytes) -> None:
    [(number, value)] = body_parts(data(content))
    assert (number, value.kind, value.payload) == (DATA, "binary", content)


@given(strategies.map_values)
def test_scanned_entries_join_to_the_map(value: Value) -> None:
    raw = encode(value)
    pairs = [raw[start:stop] for _, start, _, stop in map_entries(raw, 0, len(raw))]
    joined = join_map(b"\x00\x53\x72", pairs, len(pairs))
    assert descriptor(joined, 0) == (0x72, 3)
    assert repr(decode_all(joined[3:]).payload) == repr(value.payload)


@given(strategies.list_values)
def test_scanned_fields_join_to_the_list_without_trailing_nulls(value: Value) -> None:
    raw = encode(value)
    fields = list_fields(raw, 0, len(raw))
    joined = list_fields(join_list(b"", fields), 0, len(join_list(b"", fields)))
    assert joined == fields[: len(joined)]
    assert all(field == b"\x40" for field in fields[len(joined) :])
    assert joined[-1:] != [b"\x40"]


@given(st.lists(st.sampled_from(sorted(NAMES)), max_size=4))
def test_sections_out_of_order_are_malformed(numbers: Any) -> None:
    content = {0x70: b"\x45", 0x73: b"\x45", 0x75: b"\xa0\x00", 0x76: b"\x45", 0x77: b"\x40"}
    raw = b"".join(b"\x00\x53" + bytes((number,)) + content.get(number, b"\xc1\x01\x00") for number in numbers)
    kinds = {number for number in numbers if number in (DATA, SEQUENCE, VALUE)}
    once = [number for number in numbers if number not in (DATA, SEQUENCE)]
    if numbers == sorted(numbers) and len(kinds) <= 1 and len(once) == len(set(once)):
        assert split(raw).encode() == raw
    else:
        with pytest.raises(Malformed):
            split(raw)


@given(st.binary(max_size=100) | strategies.damaged(encoded) | encoded)
def test_any_bytes_are_malformed_or_round_trip(raw: bytes) -> None:
    amqp.check(raw)
