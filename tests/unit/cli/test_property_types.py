from decimal import Decimal
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from cli.demo.fidelity import content
from cli.property_types import EXAMPLES, date_time_offset, decimal, property_value, sdk_form, time_span, uri
from shared.amqp import values
from shared.amqp.values import Value
from shared.message.arrival import Origin
from shared.message.message import Message

ALL = [
    pytest.param(name, value, id=f"{name}-{index}")
    for name, some in EXAMPLES.items()
    for index, value in enumerate(some)
]


def sent(properties: dict[str, object]) -> bytes:
    """Return what azure-servicebus makes of application properties."""
    batch = ServiceBusMessageBatch(1 << 20)
    batch.add_message(ServiceBusMessage(b"body", application_properties=properties))  # type: ignore[arg-type]
    (encoded,) = batch._message[5]
    return bytes(encoded)


def arrived(encoded: bytes) -> Value | None:
    return Message.received(encoded, Origin("west", "queue")).application_property("name")


@pytest.mark.parametrize(("name", "value"), ALL)
def test_the_sdk_sends_every_type_except_char(name: str, value: Value) -> None:
    if name == "char":
        with pytest.raises(ValueError, match="char"):
            sdk_form(value)
        return
    found = arrived(sent({"name": sdk_form(value)}))
    assert found is not None
    assert content(found) == content(value)


def test_without_a_refusal_the_sdk_would_send_a_char_as_a_map() -> None:
    found = arrived(sent({"name": {"TYPE": "CHAR", "VALUE": "x"}}))
    assert found is not None
    assert found.kind == "map"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, values.NULL),
        (True, values.TRUE),
        (7, values.int_(7)),
        (5_000_000_000, values.long(5_000_000_000)),
        (1.5, values.double(1.5)),
        ("text", values.string("text")),
        ({"type": "byte", "value": 255}, values.ubyte(255)),
        ({"type": "sbyte", "value": -1}, values.byte(-1)),
        ({"type": "char", "value": "é"}, values.char("é")),
        ({"type": "ulong", "value": 2**64 - 1}, values.ulong(2**64 - 1)),
        ({"type": "float", "value": 1}, values.float32(1.0)),
        ({"type": "decimal", "value": "12.50"}, decimal(Decimal("12.50"))),
        ({"type": "guid", "value": "00000000-0000-0000-0000-000000000000"}, values.uuid(UUID(int=0))),
        ({"type": "uri", "value": "https://example.com"}, uri("https://example.com")),
        ({"type": "datetime", "value": "1970-01-01T00:00:01.5Z"}, values.timestamp(1500)),
        ({"type": "datetime", "value": "1970-01-01T01:00:00+01:00"}, values.timestamp(0)),
        ({"type": "datetimeoffset", "value": "0001-01-01T00:00:01"}, date_time_offset(10_000_000)),
        ({"type": "timespan", "value": -1.5}, time_span(-15_000_000)),
    ],
)
def test_json_names_every_type(given: object, expected: Value) -> None:
    assert content(property_value(given)) == content(expected)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([1], "expected a scalar"),
        ({"type": "bytes", "value": 1}, "expected one of bool, byte"),
        ({"type": "int", "value": "7"}, "expected a whole number"),
        ({"type": "int", "value": True}, "expected a whole number"),
        ({"type": "byte", "value": 256}, "out of range"),
        ({"type": "char", "value": "ab"}, "cannot be sent as char"),
        ({"type": "char", "value": "🚌"}, "U\\+FFFF"),
        ({"type": "decimal", "value": "1e40"}, "96 bits"),
        ({"type": "decimal", "value": "many"}, "cannot be sent as decimal"),
        ({"type": "datetime", "value": "1969-12-31T23:59:59Z"}, "before 1970"),
        ({"type": "guid", "value": "7"}, "cannot be sent as guid"),
        ({"type": "int", "value": 7, "unit": "s"}, "expected a scalar"),
        (2**63, "out of range"),
    ],
)
def test_an_unsupported_value_is_refused(given: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        property_value(given)
