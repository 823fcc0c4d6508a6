import uuid
from typing import Any

import pytest

from shared.amqp import map_section, values
from shared.amqp.codec import encode
from shared.amqp.scan import join_list
from shared.amqp.sections import Sections, data
from shared.amqp.values import (
    NULL,
    TRUE,
    Malformed,
    Value,
    binary,
    byte,
    int_,
    list_,
    long,
    string,
    symbol,
    timestamp,
    uint,
    ulong,
)
from shared.message.arrival import Arrival
from shared.message.message import SERVICE_ASSIGNED, Message
from shared.message.rule_properties import RuleProperties
from tests.messages import (
    ENQUEUED,
    LOCK_MILLISECONDS,
    ORIGIN,
    annotations,
    application_properties,
    delivered,
    properties,
    received,
)


def of(**parts: bytes) -> Message:
    return received(Sections(**{"body": data(b"x"), **parts}).encode())


def test_service_assigned_annotations_are_read_and_not_sent() -> None:
    assigned = {
        "x-opt-enqueued-time": timestamp(5),
        "x-opt-sequence-number": long(2**40),
        "x-opt-offset": string("77"),
        "x-opt-locked-until": timestamp(6),
        "x-opt-deadletter-source": string("jobs"),
        "x-opt-partition-key": string("key"),
        "x-opt-custom": byte(-1),
    }
    message = of(message_annotations=annotations(assigned))
    assert message.arrival == Arrival(ORIGIN, 2**40, "77", 5, 6, "jobs")
    kept = annotations({"x-opt-partition-key": string("key"), "x-opt-custom": byte(-1)})
    assert message.sections.message_annotations == kept
    assert message.encode() == kept + data(b"x")


@pytest.mark.parametrize("name", sorted(SERVICE_ASSIGNED))
def test_no_service_assigned_annotation_is_sent(name: str) -> None:
    value = string("1") if name in ("x-opt-offset", "x-opt-deadletter-source") else long(1)
    assert of(message_annotations=annotations({name: value})).encode() == data(b"x")


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ([NULL, NULL, NULL, NULL, uint(3)], None),
        ([NULL, NULL, NULL, TRUE], None),
        ([], None),
        ([TRUE, values.ubyte(4), uint(1500), TRUE, uint(3)], [TRUE, values.ubyte(4), uint(1500)]),
        ([TRUE, NULL, NULL, NULL, uint(1)], [TRUE]),
        ([NULL, NULL, Value(0x70, 5)], [NULL, NULL, Value(0x70, 5)]),
    ],
)
def test_only_header_fields_of_the_sender_are_sent(fields: list[Value], left: list[Value] | None) -> None:
    message = of(header=join_list(b"\x00\x53\x70", [encode(field) for field in fields]))
    header = b"" if left is None else join_list(b"\x00\x53\x70", [encode(field) for field in left])
    assert message.encode() == header + data(b"x")


@pytest.mark.parametrize(
    ("header", "enqueued", "deliveries", "expiry"),
    [
        ([NULL, NULL, uint(5000), NULL, uint(2)], timestamp(7), int_(3), timestamp(5007)),
        ([NULL, NULL, uint(5000), NULL, uint(2**32 - 1)], NULL, int_(2**31 - 1), None),
        ([], timestamp(7), int_(1), None),
    ],
)
def test_rules_see_how_often_a_message_was_delivered_and_when_it_expires(
    header: list[Value], enqueued: Value, deliveries: Value, expiry: Value | None
) -> None:
    message = of(
        header=join_list(b"\x00\x53\x70", [encode(field) for field in header]),
        message_annotations=annotations({"x-opt-enqueued-time": enqueued}),
    )
    rules = RuleProperties(message)
    assert (rules.system("DeliveryCount"), rules.system("ExpiresAtUtc")) == (deliveries, expiry)


@pytest.mark.parametrize("value", [byte(1), string("5"), binary(b"5"), ulong(2**63), TRUE, NULL])
def test_a_sequence_number_is_an_integer(value: Value) -> None:
    content = Sections(message_annotations=annotations({"x-opt-sequence-number": value})).encode()
    if value == NULL:
        assert received(content).arrival.sequence_number is None
    else:
        with pytest.raises(Malformed, match="x-opt-sequence-number"):
            received(content)


@pytest.mark.parametrize("value", [long(5), NULL, list_([])])
def test_an_offset_that_is_not_text_is_ignored(value: Value) -> None:
    assert of(message_annotations=annotations({"x-opt-offset": value})).arrival.offset is None


@pytest.mark.parametrize(
    ("attribute", "before", "after"),
    [
        ("message_id", string("m"), string("n")),
        ("message_id", ulong(2**64 - 1), values.uuid(uuid.UUID(int=1))),
        ("correlation_id", binary(b"c"), string("d")),
        ("to", "a", "b"),
        ("subject", "a", "ä" * 300),
        ("reply_to", "a", "b"),
        ("content_type", "text/plain", "text/html"),
        ("session_id", "s", "t"),
        ("reply_to_session_id", "s", "t"),
    ],
)
def test_a_broker_property_is_read_and_set_and_unset(attribute: str, before: Value | str, after: Value | str) -> None:
    field = before if isinstance(before, Value) else symbol(before) if attribute == "content_type" else string(before)
    options: dict[str, Any] = {attribute: field}
    message = received(delivered(1, **options))
    assert getattr(message, attribute) == before
    for value in (after, None, before):
        setattr(message, attribute, value)
        assert getattr(message, attribute) == value
        assert getattr(received(message.encode()), attribute) == value


def test_setting_the_last_field_leaves_the_bytes_of_the_others() -> None:
    section = join_list(b"\x00\x53\x73", [encode(field) for field in (Value(0xB1, "m"), Value(0xB0, b"user"))])
    message = of(properties=section)
    message.session_id = "s"
    expected = [encode(field) for field in (Value(0xB1, "m"), Value(0xB0, b"user"), *[NULL] * 8, string("s"))]
    assert message.sections.properties == join_list(b"\x00\x53\x73", expected)


def test_a_content_type_beyond_ascii_is_malformed() -> None:
    message = of()
    with pytest.raises(Malformed, match="content type"):
        message.content_type = "text/ä"
    assert message.content_type is None


@pytest.mark.parametrize("value", [long(5), ulong(2**40), TRUE, string("5"), byte(-1)])
def test_a_time_to_live_that_is_not_a_uint_is_malformed(value: Value) -> None:
    message = of(header=join_list(b"\x00\x53\x70", [encode(field) for field in (NULL, NULL, value)]))
    with pytest.raises(Malformed, match="ttl"):
        _ = message.time_to_live


def test_an_empty_header_is_not_sent() -> None:
    message = of()
    message.time_to_live = 5
    message.time_to_live = None
    assert message.encode() == data(b"x")


def twice(first: Value, second: Value) -> bytes:
    """Return the content of a map with two entries, an int 1 and an int 2."""
    pairs = encode(first) + b"\x54\x01" + encode(second) + b"\x54\x02"
    return b"\xc1" + bytes((len(pairs) + 1, 4)) + pairs


@pytest.mark.parametrize("number", [0x72, 0x74, 0x78])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (string("amount"), string("amount")),
        (string("amount"), Value(0xB1, "amount")),
        (string("amount"), symbol("amount")),
        (int_(1), Value(0x71, 1)),
        (NULL, NULL),
    ],
)
def test_a_section_with_a_duplicate_key_is_malformed(number: int, first: Value, second: Value) -> None:
    section = bytes((0x00, 0x53, number)) + twice(first, second)
    # The second time, the section has a known shape.
    for _ in range(2):
        with pytest.raises(Malformed, match="two entries have the same key"):
            received(section)


def test_names_that_differ_only_in_case_are_received_and_sent() -> None:
    section = b"\x00\x53\x74" + twice(string("amount"), string("Amount"))
    assert received(section).encode() == section


def test_setting_a_property_removes_its_other_spellings() -> None:
    message = of(application_properties=application_properties({"a": int_(1), "B": int_(2), "A": int_(3)}))
    message.set_properties({"a": int_(4)})
    assert list(message.application_properties()) == [("a", int_(4)), ("B", int_(2))]
    message.set_properties({"b": None})
    assert list(message.application_properties()) == [("a", int_(4))]


@pytest.mark.parametrize("present", [0, 1, 5, 200])
def test_appended_properties_follow_the_existing_ones(present: int) -> None:
    before = {f"name-{number}": int_(number) for number in range(present)}
    message = of(application_properties=application_properties(before))
    message.append_properties(encode(string("x")) + encode(TRUE) + encode(string("y")) + encode(NULL), 2)
    assert list(message.application_properties()) == [*before.items(), ("x", TRUE), ("y", NULL)]
    assert list(received(message.encode()).application_properties()) == [*before.items(), ("x", TRUE), ("y", NULL)]


def test_a_property_map_with_an_odd_number_of_items_is_malformed() -> None:
    with pytest.raises(Malformed, match="pairs"):
        received(b"\x00\x53\x74\xc1\x04\x01\xa1\x01a")
    with pytest.raises(Malformed, match="pairs"):
        map_section.appended(b"\x00\x53\x74\xc1\x04\x01\xa1\x01a", b"\x00\x53\x74", b"", 0)


def test_null_and_absent_properties_differ() -> None:
    message = of(application_properties=application_properties({"null": NULL}))
    assert message.application_property("null") == NULL
    assert message.application_property("absent") is None


def test_annotations_are_set_as_symbols() -> None:
    message = of()
    message.set_annotations({"x-opt-partition-key": string("k")})
    assert message.partition_key == "k"
    assert message.sections.message_annotations == annotations({"x-opt-partition-key": string("k")})
    message.set_annotations({"x-opt-partition-key": None})
    assert message.partition_key is None


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (data(b""), b""),
        (data(b"one") + data(b"two"), b"onetwo"),
        (b"", b""),
        (b"\x00\x53\x77\xa1\x01a", None),
        (b"\x00\x53\x76\x45", None),
    ],
)
def test_the_body_joins_all_data_sections(body: bytes, read: bytes | None) -> None:
    message = of(body=body)
    assert message.body == read
    assert message.encode() == body


def test_setting_the_body_writes_one_data_section() -> None:
    message = of(body=data(b"one") + data(b"two"))
    message.body = b"z" * 300
    assert message.encode() == data(b"z" * 300)


def test_editing_a_copy_does_not_change_the_original() -> None:
    message = received(delivered(1, named={"a": int_(1)}))
    before = message.encode()
    copied = message.copy()
    copied.body = b"other"
    copied.set_properties({"a": None})
    copied.session_id = "s"
    assert message.encode() == before
    assert copied.arrival == message.arrival


@pytest.mark.parametrize(
    ("fields", "annotated", "envelope"),
    [
        ({}, {}, (None, None, None)),
        ({"message_id": string("m"), "session_id": string("s")}, {}, ("m", "s", None)),
        ({"message_id": ulong(5)}, {"x-opt-partition-key": string("k")}, (None, None, "k")),
        ({"session_id": string("")}, {}, (None, "", None)),
        ({"session_id": Value(0xB1, "s")}, {"x-opt-partition-key": NULL}, (None, "s", None)),
    ],
)
def test_outgoing_envelope_has_only_ids_and_keys_that_are_text(
    fields: dict[str, Value], annotated: dict[str, Value], envelope: tuple[str | None, str | None, str | None]
) -> None:
    message = of(properties=properties(**fields), message_annotations=annotations(annotated))
    assert message.envelope() == envelope


def test_a_session_id_that_is_not_text_is_malformed() -> None:
    message = of(properties=properties(session_id=int_(1)))
    with pytest.raises(Malformed):
        message.envelope()


def test_arrival_has_the_size_and_the_times_of_the_delivery() -> None:
    message = received(delivered(3))
    assert message.size == len(message.encode())
    assert message.arrival.enqueued_time == ENQUEUED
    assert message.arrival.locked_until == ENQUEUED + LOCK_MILLISECONDS


@pytest.mark.parametrize("more", [{}, {"x-opt-custom": byte(-1)}])
def test_the_end_in_the_year_10000_that_a_message_of_a_session_names_is_none(more: dict[str, Value]) -> None:
    # SR1
    message = received(delivered(3, session_id="s", locked_until=253_402_300_800_000, annotated=more))
    assert message.arrival.locked_until is None
