"""Reading a section by its shape gives the same result as walking through it, whatever was read before."""

from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.amqp import map_section
from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map, list_fields
from shared.amqp.sections import Sections, fields_of
from shared.amqp.shapes import Shapes, cut_into
from shared.amqp.values import Malformed, string
from shared.journal.canonical import canonical
from shared.journal.imprints import Imprinter
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from tests import strategies

# Few keys and short texts, so that sections of the same length and shape occur.
keys = st.sampled_from(("a", "b", "B", "c", "due", "repl-path", "DeadLetterReason", "ä"))
values = (
    st.text("ab", max_size=2).map(string)
    | strategies.of_kind("long", "int", "boolean", "null", "timestamp", "binary", "symbol", "double")
    | strategies.values
)
maps = st.lists(st.tuples(keys, values), max_size=4).map(
    lambda pairs: join_map(b"\x00\x53\x74", [encode(string(key)) + encode(value) for key, value in pairs], len(pairs))
)
lists = st.lists(values, max_size=5).map(lambda fields: join_list(b"\x00\x53\x73", [encode(field) for field in fields]))


def or_malformed(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Malformed:
        return Malformed


@given(st.lists(lists | strategies.damaged(lists), min_size=1, max_size=6))
def test_fields_of_a_list_are_those_of_a_walk(examples: list[bytes]) -> None:
    for section in examples + examples:
        walked = or_malformed(list_fields, section, 3, len(section)) if section[:3] == b"\x00\x53\x73" else None
        fields = or_malformed(fields_of, section)
        if walked is not None:
            assert fields is Malformed if walked is Malformed else list(fields) == walked


@given(st.lists(maps | strategies.damaged(maps), min_size=1, max_size=6), st.sampled_from(("a", "b", "due", "ä", "x")))
def test_name_is_found_like_in_a_walk(examples: list[bytes], wanted: Any) -> None:
    for section in examples + examples:
        try:
            walked = [
                (key, start, value)
                for key, start, value, _ in map_section.entries(section)
                if (key or "").lower() == wanted
            ]
        except Malformed:
            continue
        names = map_section.Names(section)
        assert names.spellings(wanted) == [key for key, _, _ in walked]
        if len(walked) > 1:
            with pytest.raises(map_section.AmbiguousName):
                names.find(wanted)
        else:
            assert names.find(wanted) == (walked[0][1:] if walked else None)


@given(st.lists(maps | strategies.damaged(maps), min_size=1, max_size=6))
def test_a_key_that_is_there_twice_is_found_like_in_a_walk(examples: list[bytes]) -> None:
    for section in examples + examples:
        try:
            entries = map_section.entries(section)
        except Malformed:
            continue
        keys = [section[start:value] if key is None else key for key, start, value, _ in entries]
        if len(set(keys)) < len(keys):
            with pytest.raises(Malformed, match="same key"):
                map_section.by_key(section, "application-properties")
        elif all(isinstance(key, str) for key in keys):
            map_section.by_key(section, "application-properties")


# One key twice, with the greater value in front.
@example([b"\x00\x53\x74\xd1\x00\x00\x00\x0f\x00\x00\x00\x04\xa1\x01a\xa1\x01a\xa1\x01a\xa1\x00"])
@given(st.lists(maps | strategies.damaged(maps), min_size=1, max_size=6))
def test_digest_of_properties_uses_their_canonical_encoding(examples: list[bytes]) -> None:
    imprinter = Imprinter()
    for section in examples + examples:
        try:
            pairs = [
                canonical(section, start, value) + canonical(section, value, stop)
                for start, key, value, stop in map_section.walk(section)
                if not section[key:value].startswith((b"repl-", b"DeadLetterReason"))
            ]
        except Malformed:
            pairs = [section, b""]
        content = Message(Sections(application_properties=section), Arrival(Origin("west", "orders")))
        digest = blake2b(b"".join(sorted(pairs)), digest_size=8).digest()
        assert imprinter.arriving(content).property_digest == digest


def test_section_of_a_known_shape_needs_no_walk() -> None:
    walked = []

    def walk(section: bytes) -> Any:
        walked.append(section)
        return None if section.startswith(b"-") else ([(1, 2, 4), (4, 5, 6)], section[1:2])

    shapes = Shapes(walk)
    assert [shapes.find(each) for each in (b".axxbx", b".ayybz")] == [b"a", b"a"]
    assert walked == [b".axxbx"]
    assert shapes.find(b".cxxbx") == b"c", "another shape"
    assert [shapes.find(b"-%d" % number) for number in range(10, 20)] == [None] * 10
    assert len(walked) == 6, "four of a length"
    assert shapes.find(b".axxbxx") is None, "parts that end before it does"
    assert cut_into([(1, 2, 4), (4, 5, 6)])(b".axxbx") == (b"axx", b"bx")
