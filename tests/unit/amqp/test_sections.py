import pytest

from shared.amqp import values
from shared.amqp.codec import encode
from shared.amqp.sections import (
    DATA,
    HEADER,
    NAMES,
    SEQUENCE,
    VALUE,
    Sections,
    body_parts,
    data,
    descriptor,
    split,
)
from shared.amqp.values import Malformed


def raw_of(text: str) -> bytes:
    return bytes.fromhex(text)


HEADER_SECTION = raw_of("00 53 70 c0 02 01 41")
DELIVERY = raw_of("00 53 71 c1 01 00")
ANNOTATIONS = raw_of("00 53 72 c1 05 02 a3 01 61 41")
PROPERTIES = raw_of("00 53 73 c0 04 01 a1 01 61")
APPLICATION = raw_of("00 53 74 c1 05 02 a1 01 61 41")
BODY = raw_of("00 53 75 a0 02 7b7d")
FOOTER = raw_of("00 53 78 c1 01 00")
ALL = HEADER_SECTION + DELIVERY + ANNOTATIONS + PROPERTIES + APPLICATION + BODY + FOOTER


def test_every_section_is_kept_as_its_bytes() -> None:
    sections = split(ALL)
    assert sections == Sections(HEADER_SECTION, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, BODY, FOOTER)
    assert sections.encode() == ALL
    assert split(b"xy" + ALL, 2) == sections


def test_absent_sections_are_empty() -> None:
    assert split(b"") == Sections()
    assert split(BODY) == Sections(body=BODY)
    assert split(PROPERTIES) == Sections(properties=PROPERTIES)
    assert split(FOOTER) == Sections(footer=FOOTER)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("00 53 70 45", HEADER),
        ("00 80 0000000000000070 45", HEADER),
        ("00 a3 10 616d71703a6865616465723a6c697374 45", HEADER),
        ("00 b3 00000010 616d71703a6865616465723a6c697374 45", HEADER),
    ],
)
def test_a_descriptor_is_a_number_or_a_name_in_any_encoding(text: str, number: int) -> None:
    raw = raw_of(text)
    assert descriptor(raw, 0) == (number, len(raw) - 1)
    assert split(raw) == Sections(header=raw)


@pytest.mark.parametrize("number", NAMES)
def test_every_section_has_its_name_as_descriptor(number: int) -> None:
    kind = {0x70: "list", 0x73: "list", 0x75: "binary", 0x76: "list", 0x77: "*"}.get(number, "map")
    name = encode(values.symbol(f"amqp:{NAMES[number]}:{kind}"))
    assert descriptor(b"\x00" + name, 0) == (number, 1 + len(name))


@pytest.mark.parametrize(
    "body",
    [
        BODY + BODY,
        BODY + raw_of("00 80 0000000000000075 b0 00000000"),
        raw_of("00 53 76 45"),
        raw_of("00 53 76 45 00 53 76 c0 02 01 41"),
        raw_of("00 53 77 40"),
        raw_of("00 53 77 00 53 70 45"),
    ],
)
def test_a_body_of_several_sections_stays_together(body: bytes) -> None:
    assert split(PROPERTIES + body + FOOTER) == Sections(properties=PROPERTIES, body=body, footer=FOOTER)
    assert [number for number, _ in body_parts(body)] == [body[2] if body[1] == 0x53 else DATA] * len(body_parts(body))


def test_a_body_is_split_into_its_sections() -> None:
    assert body_parts(b"") == []
    assert body_parts(BODY + data(b"a")) == [(DATA, values.binary(b"{}")), (DATA, values.binary(b"a"))]
    assert body_parts(raw_of("00 53 76 45")) == [(SEQUENCE, values.list_([]))]
    assert body_parts(raw_of("00 53 77 a1 01 61")) == [(VALUE, values.string("a"))]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x40", "section at byte 0: expected a descriptor"),
        (b"\x00", "value at byte 1: the data ends there"),
        (b"\x00\x53", "value at byte 2: needs 1 bytes, the data has 0|value at byte 1"),
        (b"\x00\x53\x70", "reaches beyond the end"),
        (raw_of("00 53 6f 45"), "section at byte 0: no section has this descriptor"),
        (raw_of("00 53 79 45"), "no section has this descriptor"),
        (raw_of("00 44 45"), "no section has this descriptor"),
        (raw_of("00 52 70 45"), "no section has this descriptor"),
        (raw_of("00 40 45"), "no section has this descriptor"),
        (b"\x00" + encode(values.string("amqp:header:list")) + b"\x45", "no section has this descriptor"),
        (b"\x00" + encode(values.symbol("amqp:header")) + b"\x45", "no section has this descriptor"),
        (raw_of("00 53 70 c1 01 00"), "header at byte 0: format code 0xc1 is not what it holds"),
        (raw_of("00 53 72 45"), "message-annotations at byte 0: format code 0x45"),
        (raw_of("00 53 74 40"), "application-properties at byte 0: format code 0x40"),
        (raw_of("00 53 75 a1 01 61"), "data at byte 0: format code 0xa1"),
        (raw_of("00 53 76 a0 00"), "amqp-sequence at byte 0: format code 0xa0"),
        (raw_of("00 53 75 a0 05 61"), "reaches beyond the end"),
        (ALL + b"\x40", "expected a descriptor"),
        (ALL + FOOTER, "footer at byte 55: after footer, expected it before"),
        (HEADER_SECTION * 2, "header at byte 7: after header"),
        (BODY + PROPERTIES, "properties at byte 7: after data, expected it before"),
        (BODY + raw_of("00 53 76 45"), "amqp-sequence at byte 7: after data, expected one kind of body"),
        (BODY + raw_of("00 53 77 40"), "amqp-value at byte 7: after data, expected one kind of body"),
        (raw_of("00 53 76 45 00 53 77 40"), "amqp-value at byte 4: after amqp-sequence"),
        (raw_of("00 53 77 40 00 53 77 40"), "amqp-value at byte 4: after amqp-value"),
        (raw_of("00 53 76 45") + BODY, "data at byte 4: after amqp-sequence, expected it before"),
    ],
)
def test_what_the_specification_forbids_is_malformed(raw: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        split(raw)


def test_a_body_of_very_many_sections_is_read_in_one_pass() -> None:
    # A batch is a message with a data section for each of its messages; quadratic work would take minutes here.
    body = data(b"") * 200_000
    sections = split(PROPERTIES + body)
    assert sections.body == body
    assert len(body_parts(body)) == 200_000


def test_an_error_does_not_show_the_content() -> None:
    with pytest.raises(Malformed) as raised:
        split(PROPERTIES + data(b"secret") + b"secret")
    assert "secret" not in str(raised.value)
