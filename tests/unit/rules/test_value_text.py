"""Values of every type as text for people."""

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from cli.property_types import EXAMPLES, date_time_offset, decimal, time_span, uri
from shared.amqp import values
from shared.amqp.codec import decode
from shared.amqp.values import Value
from shared.rules.value_text import typed_text

NOON = round(datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp() * 1000)
GUID = UUID("6f2d3b62-0a63-4c0c-9a0f-6b8f2c2f1e11")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (decimal(Decimal("12.50")), "12.50 (decimal128)"),
        (decimal(Decimal("1E-28")), "0.0000000000000000000000000001 (decimal128)"),
        (decimal(Decimal("1E+30")), "1E+30 (decimal128)"),
        (decode(bytes.fromhex("9478") + bytes(15))[0], "Infinity (decimal128)"),
        (values.char("A"), "A (char)"),
        (values.uuid(GUID), f"{GUID} (uuid)"),
        (uri("https://example.test/a?b#c"), '"https://example.test/a?b#c" (uri)'),
        (time_span(300 * 10**7), "00:05:00 (timespan)"),
        (time_span(-(86_400 * 10**7) - 1), "-1.00:00:00.0000001 (timespan)"),
        (time_span(2**63 - 1), "10675199.02:48:05.4775807 (timespan)"),
        (date_time_offset(638_000_000_000_000_001), "2022-09-28T22:13:20.0000001Z (datetime-offset)"),
        (date_time_offset(-1), "-1 ticks since the year 1 (datetime-offset)"),
        (values.timestamp(NOON), "2026-01-02T12:00:00Z (timestamp)"),
        (values.timestamp(-62_135_596_800_000), "0001-01-01T00:00:00Z (timestamp)"),
        (values.timestamp(2**62), f"{2**62 * 10_000 + 621_355_968_000_000_000} ticks since the year 1 (timestamp)"),
        (values.binary(b"\xff\x00"), "ff 00 (binary)"),
        (values.binary(b""), "(empty) (binary)"),
        (values.string("a\x1b\n"), '"a\\u001b\\n"'),
        (values.symbol("s"), "s (symbol)"),
        (values.long(7), "7 (long)"),
        (values.NULL, "null"),
        (values.TRUE, "true"),
        (values.array(0x71, [Value(0x71, 1), Value(0x71, 2)]), "[1, 2] (array of int)"),
        (values.array(0x71, []), "[] (array)"),
        (
            values.map_([(values.string("n"), decimal(Decimal(1))), (values.int_(2), values.list_([values.NULL]))]),
            '{"n": 1 (decimal128), 2 (int): [null]}',
        ),
        (values.described(values.ulong(99), values.int_(1)), "99: 1 (int) (described)"),
    ],
)
def test_a_value_is_shown_as_what_it_is(value: Value, text: str) -> None:
    assert typed_text(value) == text


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_type_of_a_property_is_one_printable_line_without_pythons_names(name: str) -> None:
    for value in EXAMPLES[name]:
        text = typed_text(value)
        assert text.isprintable()
        assert "b'" not in text
        assert "Described" not in text
