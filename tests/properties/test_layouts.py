"""A layout reads the same values as a walk through the map, whatever was read before."""

from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.codec import decode, encode
from shared.amqp.layouts import Layouts
from shared.amqp.map_section import entries
from shared.amqp.scan import join_map
from shared.amqp.values import Malformed, symbol
from tests import strategies

INTEGERS, TEXTS, OTHERS = (b"number", b"time"), (b"text",), (b"state",)
KINDS = {"long", "int", "uint", "timestamp"}

keys = st.sampled_from(("number", "time", "text", "state", "mine"))
values = strategies.of_kind("long", "int", "uint", "timestamp", "string", "symbol", "ulong", "boolean", "null")
sections = st.dictionaries(keys, values, max_size=5).map(
    lambda named: join_map(
        b"\x00\x53\x72", [encode(symbol(key)) + encode(each) for key, each in named.items()], len(named)
    )
)


@given(st.lists(sections, min_size=1, max_size=8))
def test_layout_reads_the_same_as_a_walk_or_gives_up(examples: list[bytes]) -> None:
    layouts = Layouts(INTEGERS, TEXTS, OTHERS)
    for section in examples + examples:
        found = {key: decode(section, start, stop)[0] for key, _, start, stop in entries(section)}
        read = layouts.read(section)
        if read is None:
            continue
        assert found.keys() <= {"number", "time", "text", "state"}
        integers, texts = read
        for key, value in zip(INTEGERS, integers, strict=True):
            found_value = found.get(key.decode())
            assert value == (None if found_value is None else found_value.payload)
            assert found_value is None or found_value.kind in KINDS
        for key, text in zip(TEXTS, texts, strict=True):
            found_value = found.get(key.decode())
            assert text == (
                found_value.payload if found_value is not None and found_value.kind in {"string", "symbol"} else None
            )


@given(strategies.damaged(sections))
def test_layout_gives_up_on_anything_but_a_map(section: bytes) -> None:
    layouts = Layouts(INTEGERS, TEXTS, OTHERS)
    try:
        layouts.read(section)
    except Malformed:
        return


def test_common_map_is_read_by_its_layout() -> None:
    section = join_map(
        b"\x00\x53\x72",
        [b"\xa3\x06number\x81" + (7).to_bytes(8), b"\xa3\x04time\x83" + (8).to_bytes(8), b"\xa3\x04text\xa1\x01x"],
        3,
    )
    layouts = Layouts(INTEGERS, TEXTS, OTHERS)
    assert layouts.read(section) == ((7, 8), ["x"])
    assert layouts.read(section.replace((7).to_bytes(8), (9).to_bytes(8))) == ((9, 8), ["x"])
    assert layouts.read(section.replace(b"\x01x", b"\x01\xff")) is None, "not UTF-8"
    assert layouts.read(section.replace(b"time\x83", b"time\x80")) is None, "of another type"
