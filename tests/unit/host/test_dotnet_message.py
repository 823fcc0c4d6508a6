import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.dotnet_message import reencode
from host.dotnet_values import CannotBind, CannotReceive
from shared.amqp import sections, values
from shared.amqp.codec import decode_all, encode, items_of, pairs_of
from shared.amqp.values import NULL, Value

NOW = 1_800_000_000_000


def section(number: int, value: Value) -> bytes:
    return b"\x00\x53" + bytes([number]) + encode(value)


def header(*fields: Value) -> bytes:
    return section(sections.HEADER, values.list_(fields))


def properties(**fields: Value) -> bytes:
    return section(sections.PROPERTIES, values.list_([fields.get(f"p{index}", NULL) for index in range(13)]))


def application_properties(*pairs: tuple[Value, Value]) -> bytes:
    return section(sections.APPLICATION_PROPERTIES, values.map_(pairs))


def one_property(value: Value) -> bytes:
    return application_properties((values.string("p"), value)) + sections.data(b"")


def fields_of(raw: bytes) -> list[Value]:
    return list(items_of(decode_all(raw[3:])))


def property_after(value: Value) -> Value:
    (pair,) = pairs_of(decode_all(sections.split(reencode(one_property(value), NOW)).application_properties[3:]))
    return pair[1]


@pytest.mark.parametrize(
    "value",
    [
        values.NULL,
        values.TRUE,
        values.FALSE,
        values.ubyte(7),
        values.byte(-7),
        values.ushort(700),
        values.short(-700),
        values.uint(0),
        values.uint(70_000),
        values.int_(-1),
        values.int_(70_000),
        values.ulong(0),
        values.ulong(2**64 - 1),
        values.long(2**62 + 1),
        values.float32(1.5),
        values.double(float("nan")),
        values.char("é"),
        values.timestamp(1_700_000_000_123),
        values.uuid(uuid.UUID(int=5)),
        values.string("text"),
        values.string(""),
        values.string("ü" * 200),
    ],
    ids=lambda value: f"{value.kind}-{value.code:02x}",
)
def test_simple_property_keeps_type_and_value(value: Value) -> None:
    after = property_after(value)
    assert encode(after) == encode(value)


def test_wide_encodings_become_the_narrowest() -> None:
    assert property_after(Value(0x71, 5)) == values.int_(5)
    assert property_after(Value(0x81, -5)) == values.long(-5)
    assert property_after(Value(0x70, 200)) == values.uint(200)
    assert property_after(Value(0x80, 0)) == values.ulong(0)
    assert property_after(Value(0x56, payload=True)) == values.TRUE
    assert property_after(Value(0xB1, "short")) == values.string("short")


def test_symbol_becomes_string() -> None:
    assert property_after(values.symbol("red")) == values.string("red")


def test_timestamps_are_held_to_the_range_of_datetime() -> None:
    assert property_after(values.timestamp(-1)) == values.timestamp(0)
    assert property_after(values.timestamp(2**62)) == values.timestamp(253_402_300_800_000)


def test_timestamps_pass_through_a_double() -> None:
    assert property_after(values.timestamp(14_411_518_807_588)) == values.timestamp(14_411_518_807_588)
    assert property_after(values.timestamp(253_402_300_799_999)) == values.timestamp(253_402_300_799_998)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("com.microsoft:timespan", values.long(36_000_000_000)),
        ("com.microsoft:datetime-offset", values.long(638_000_000_000_000_000)),
        ("com.microsoft:uri", values.string("https://example.org/")),
    ],
)
def test_described_types_of_dotnet_are_kept(name: str, value: Value) -> None:
    described = values.described(values.symbol(name), value)
    assert property_after(described) == described


def test_property_of_another_described_type_is_dropped() -> None:
    pairs = [
        (values.string("a"), values.described(values.symbol("other"), values.int_(1))),
        (values.string("b"), values.int_(2)),
    ]
    after = sections.split(reencode(application_properties(*pairs) + sections.data(b""), NOW))
    assert pairs_of(decode_all(after.application_properties[3:])) == ((values.string("b"), values.int_(2)),)


@pytest.mark.parametrize(
    "value",
    [values.binary(b"x"), values.list_([values.int_(1)]), values.list_([]), values.array(0x54, [Value(0x54, 1)])],
    ids=lambda value: value.kind,
)
def test_binary_list_and_array_properties_cannot_be_bound(value: Value) -> None:
    with pytest.raises(CannotBind):
        reencode(one_property(value), NOW)


@pytest.mark.parametrize(
    "value",
    [
        values.map_([(values.string("a"), values.int_(1))]),
        values.described(values.ulong(5), values.int_(1)),
        values.char("😀"),
        Value(0x94, bytes(16)),
    ],
    ids=["map", "described by a number", "char beyond the BMP", "decimal with scale 6176"],
)
def test_property_that_dotnet_cannot_read_fails_the_receive_call(value: Value) -> None:
    with pytest.raises(CannotReceive):
        reencode(one_property(value), NOW)


def test_failure_to_read_comes_before_failure_to_write() -> None:
    unwritable = section(sections.MESSAGE_ANNOTATIONS, values.map_([(values.symbol("x"), values.binary(b""))]))
    unreadable = one_property(values.map_([]))
    with pytest.raises(CannotReceive):
        reencode(unwritable + unreadable, NOW)


def decimal128(number: str) -> bytes:
    sign, digits, exponent = Decimal(number).as_tuple()
    significand = int("".join(map(str, digits)))
    return (sign << 127 | (6176 + int(exponent)) << 113 | significand).to_bytes(16)


def with_wrong_exponent(number: str) -> Value:
    """Return a decimal as .NET writes it: 0x0c or 0x8c in place of 0x30 or 0xb0."""
    raw = decimal128(number)
    return values.decimal128(bytes((raw[0] - 0x24,)) + raw[1:])


@pytest.mark.parametrize("number", ["1.10", "-3", "0.0000000000000000000000000001", "79228162514264337593543950335"])
def test_decimal128_gets_a_wrong_exponent_which_dotnet_reads_back_right(number: str) -> None:
    assert property_after(values.decimal128(decimal128(number))) == with_wrong_exponent(number)
    assert property_after(with_wrong_exponent(number)) == with_wrong_exponent(number)


def test_decimal32_and_64_fail_the_receive_call() -> None:
    for decimal in (Value(0x74, ((101 - 2) << 23 | 110).to_bytes(4)), Value(0x84, ((398 - 1) << 53 | 15).to_bytes(8))):
        with pytest.raises(CannotReceive):
            reencode(one_property(decimal), NOW)


def test_decimal_with_a_positive_exponent_is_written_out() -> None:
    raw = (6176 + 3) << 113 | 7
    assert property_after(values.decimal128(raw.to_bytes(16))) == with_wrong_exponent("7000")


@pytest.mark.parametrize(
    ("identifier", "text"),
    [
        (values.string("id"), "id"),
        (values.uuid(uuid.UUID(int=1)), "00000000-0000-0000-0000-000000000001"),
        (values.ulong(2**63), str(2**63)),
        (values.binary(b"\x0a\xff"), "0AFF"),
    ],
)
def test_message_id_and_correlation_id_become_strings(identifier: Value, text: str) -> None:
    message = properties(p0=identifier, p5=identifier) + sections.data(b"")
    after = fields_of(sections.split(reencode(message, NOW)).properties)
    assert after[0] == after[5] == values.string(text)


def test_empty_fields_disappear_and_others_are_written_at_full_width() -> None:
    message = properties(p3=values.string(""), p6=values.symbol(""), p10=values.string(""), p2=values.string("to"))
    after = fields_of(sections.split(reencode(message + sections.data(b""), NOW)).properties)
    assert len(after) == 13
    assert [index for index, field in enumerate(after) if field != NULL] == [2]


def test_properties_section_without_a_field_disappears() -> None:
    assert sections.split(reencode(properties() + sections.data(b"x"), NOW)).properties == b""


def test_delivery_count_is_one_more_for_service_bus() -> None:
    message = header(values.TRUE, NULL, NULL, NULL, values.uint(2)) + sections.data(b"")
    after = fields_of(sections.split(reencode(message, NOW, delivery_count_offset=1)).header)
    assert after == [values.TRUE, NULL, NULL, NULL, values.uint(3)]
    assert fields_of(sections.split(reencode(message, NOW)).header)[4] == values.uint(2)


def test_time_to_live_sets_creation_and_expiry_by_the_hosts_clock() -> None:
    message = header(NULL, NULL, values.uint(60_000)) + sections.data(b"")
    after = sections.split(reencode(message, NOW))
    assert fields_of(after.header)[2] == values.uint(60_000)
    fields = fields_of(after.properties)
    assert (fields[8], fields[9]) == (values.timestamp(NOW + 60_000), values.timestamp(NOW))


def test_time_to_live_is_expiry_minus_creation_where_both_are_set() -> None:
    fifty_days = 50 * 86_400_000
    message = header(NULL, NULL, values.uint(1)) + properties(p8=values.timestamp(fifty_days), p9=values.timestamp(0))
    after = sections.split(reencode(message + sections.data(b""), NOW))
    assert fields_of(after.header)[2] == values.uint(2**32 - 1)
    assert fields_of(after.properties)[8] == values.timestamp(NOW + fifty_days)


def test_expiry_without_creation_and_ttl_is_kept() -> None:
    message = properties(p8=values.timestamp(5)) + sections.data(b"")
    after = sections.split(reencode(message, NOW))
    assert after.header == b""
    assert fields_of(after.properties)[8] == values.timestamp(5)


def test_annotations_keep_their_order_with_symbols_as_keys_and_the_last_of_two_alike() -> None:
    pairs = [
        (values.symbol("a"), values.int_(1)),
        (values.string("b"), values.symbol("two")),
        (values.ulong(3), values.int_(3)),
        (values.symbol("a"), values.int_(4)),
    ]
    for number in (sections.DELIVERY_ANNOTATIONS, sections.MESSAGE_ANNOTATIONS):
        after = reencode(section(number, values.map_(pairs)) + sections.data(b""), NOW)
        assert pairs_of(decode_all(after[3:-5])) == (
            (values.symbol("a"), values.int_(4)),
            (values.symbol("b"), values.string("two")),
            (values.symbol("3"), values.int_(3)),
        )


def test_empty_sections_disappear() -> None:
    empty = values.map_([])
    message = (
        header()
        + section(sections.MESSAGE_ANNOTATIONS, empty)
        + section(sections.APPLICATION_PROPERTIES, empty)
        + sections.data(b"x")
    )
    assert reencode(message, NOW) == sections.data(b"x")


def value_body(value: Value) -> bytes:
    return section(sections.VALUE, value)


@pytest.mark.parametrize(
    "body",
    [
        sections.data(b"one") + sections.data(b"x" * 300) + sections.data(b""),
        value_body(values.int_(5)),
        value_body(values.binary(b"bytes")),
        section(sections.SEQUENCE, Value(0xC0, (values.string("a"), values.binary(b"b")))),
        value_body(Value(0xC1, ((values.string("k"), values.binary(b"v")),))),
        value_body(values.list_([])),
    ],
    ids=["data", "int", "binary", "sequence", "map", "empty list"],
)
def test_body_is_kept(body: bytes) -> None:
    assert reencode(body, NOW) == body


def test_missing_and_null_bodies_become_empty_data() -> None:
    assert reencode(b"", NOW) == sections.data(b"")
    assert reencode(value_body(NULL), NOW) == sections.data(b"")


def test_symbol_body_becomes_string_and_map_body_gets_strings_as_keys() -> None:
    assert reencode(value_body(values.symbol("s")), NOW) == value_body(values.string("s"))
    body = value_body(values.map_([(values.symbol("k"), values.int_(1))]))
    assert pairs_of(decode_all(reencode(body, NOW)[3:])) == ((values.string("k"), values.int_(1)),)


@pytest.mark.parametrize(
    "inner",
    [NULL, values.symbol("s"), values.map_([(values.string("k"), values.int_(1))])],
    ids=["null", "symbol", "map"],
)
def test_null_symbol_and_map_inside_of_a_body_fail_the_receive_call(inner: Value) -> None:
    for outer in (values.list_([inner]), values.map_([(values.string("k"), inner)])):
        with pytest.raises(CannotReceive):
            reencode(value_body(outer), NOW)
    with pytest.raises(CannotReceive):
        reencode(section(sections.SEQUENCE, values.list_([inner])), NOW)


def test_an_empty_data_section_before_another_section_cannot_be_bound() -> None:
    footer = section(sections.FOOTER, values.map_([(values.symbol("f"), values.int_(1))]))
    for body in (sections.data(b""), b"", value_body(NULL)):
        with pytest.raises(CannotBind):
            reencode(body + footer, NOW)
    with pytest.raises(CannotBind):
        reencode(sections.data(b"") + sections.data(b"x"), NOW)


def test_map_with_two_keys_of_one_text_fails_as_a_body_and_collapses_as_a_section() -> None:
    pairs = [(values.string("1"), values.int_(1)), (values.int_(1), values.int_(2))]
    with pytest.raises(CannotReceive):
        reencode(value_body(values.map_(pairs)), NOW)
    after = sections.split(reencode(application_properties(*pairs) + sections.data(b""), NOW))
    assert pairs_of(decode_all(after.application_properties[3:])) == ((values.string("1"), values.int_(2)),)


def test_footer_follows_the_rules_of_annotations() -> None:
    message = sections.data(b"x") + section(sections.FOOTER, values.map_([(values.symbol("f"), values.symbol("v"))]))
    after = sections.split(reencode(message, NOW))
    assert pairs_of(decode_all(after.footer[3:])) == ((values.symbol("f"), values.string("v")),)


@pytest.mark.parametrize(
    "payload", [b"\x00", b"nonsense", b"\x00\x53\x74\xc1\x05\x02\xa1\x09", b"\x00\x53\x70\xc0\x03\x05\x41"]
)
def test_malformed_messages_fail_the_receive_call(payload: bytes) -> None:
    with pytest.raises(CannotReceive):
        reencode(payload, NOW)


def test_text_that_is_not_utf8_gets_replacement_characters() -> None:
    raw = b"\x00\x53\x74\xc1\x08\x02\xa1\x01p\xa1\x02\xff\xfe" + sections.data(b"")
    after = sections.split(reencode(raw, NOW)).application_properties
    assert pairs_of(decode_all(after[3:])) == ((values.string("p"), values.string("\ufffd\ufffd")),)


@pytest.mark.parametrize("field", [values.int_(1), values.string("1"), values.timestamp(1)])
def test_field_of_the_wrong_type_fails_the_receive_call(field: Value) -> None:
    with pytest.raises(CannotReceive):
        reencode(header(NULL, NULL, field) + sections.data(b""), NOW)
    with pytest.raises(CannotReceive):
        reencode(properties(p11=field) + sections.data(b""), NOW)


@given(
    st.binary(max_size=80), st.sampled_from([b"", b"\x00\x53\x74", b"\x00\x53\x73", b"\x00\x53\x70", b"\x00\x53\x77"])
)
def test_whatever_arrives_gives_a_message_or_one_of_the_two_errors(content: bytes, prefix: bytes) -> None:
    try:
        once = reencode(prefix + content, NOW)
    except (CannotReceive, CannotBind):
        return
    assert reencode(once, NOW) == once
