import uuid
from decimal import Decimal

import pytest

from shared.amqp import values
from shared.amqp.values import Value
from shared.rules import RuleEvaluationError, parse_action
from shared.rules.decimals import decimal_value
from shared.rules.value_types import EPOCH_TICKS, datetime_offset, timespan, uri
from tests.unit.rules.properties_in_memory import PropertiesInMemory

GUID = uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e")


def applied(
    text: str, *, system: dict[str, Value] | None = None, parameters: dict[str, Value] | None = None, **user: Value
) -> PropertiesInMemory:
    properties = PropertiesInMemory(system=system, **user)
    parse_action(text).apply(properties, parameters or {})
    return properties


def test_set_creates_a_property_of_the_type_of_its_expression() -> None:
    properties = applied("SET replication = 1; SET Color = 'red'; SET ratio = 0.5; SET ok = TRUE; SET none = NULL")
    assert properties.user_values == {
        "replication": values.long(1),
        "Color": values.string("red"),
        "ratio": values.double(0.5),
        "ok": values.boolean(True),
        "none": values.NULL,
    }


def test_a_statement_sees_the_changes_of_earlier_statements() -> None:
    properties = applied("SET a = a + 1; SET a = a * 10; SET b = a; REMOVE a", a=values.long(1))
    assert properties.user_values == {"b": values.long(20)}


def test_an_existing_property_keeps_its_spelling_and_its_type() -> None:
    properties = applied(
        "SET COLOR = 1; SET quantity = quantity / 2", Color=values.string("red"), quantity=values.int_(9)
    )
    assert properties.user_values == {"Color": values.string("1"), "quantity": values.int_(4)}


def test_remove_ignores_case_and_accepts_a_missing_property() -> None:
    assert applied("REMOVE PRIORITY; REMOVE other", priority=values.long(1)).user_values == {}


def test_set_to_unknown_makes_a_property_null_and_unsets_a_system_property() -> None:
    properties = applied(
        "SET a = missing; SET sys.To = missing; SET sys.Label = NULL",
        system={"To": values.string("x"), "Subject": values.string("y")},
        a=values.long(1),
    )
    assert properties.user_values == {"a": values.NULL}
    assert properties.system_values == {}


def test_a_null_property_takes_any_type() -> None:
    assert applied("SET a = 1", a=values.NULL).user_values == {"a": values.long(1)}


@pytest.mark.parametrize(
    ("existing", "expression", "result"),
    [
        # numbers
        (values.ubyte(1), "255", values.ubyte(255)),
        (values.ubyte(1), "256", values.long(256)),
        (values.ushort(1), "2", values.ushort(2)),
        (values.uint(1), "2", values.uint(2)),
        (values.ulong(1), "2", values.ulong(2)),
        (values.byte(1), "-128", values.byte(-128)),
        (values.short(1), "2", values.short(2)),
        (values.int_(1), "2.0", values.int_(2)),
        (values.int_(1), "2.5", values.double(2.5)),
        (values.int_(1), "3000000000", values.long(3000000000)),
        (values.float32(1), "2", values.float32(2.0)),
        (values.double(1), "2", values.double(2.0)),
        (decimal_value("decimal128", Decimal("9.99")), "0.1", decimal_value("decimal128", Decimal("0.1"))),
        (decimal_value("decimal32", Decimal(1)), "123456789", values.long(123456789)),
        # text that reads as what was there
        (values.int_(1), "'42'", values.int_(42)),
        (values.int_(1), "' -42 '", values.int_(-42)),
        (values.int_(1), "'4_2'", values.string("4_2")),
        (values.int_(1), "'x'", values.string("x")),
        (values.double(1), "'1.5E3'", values.double(1500.0)),
        (decimal_value("decimal64", Decimal(1)), "'0.10'", decimal_value("decimal64", Decimal("0.10"))),
        (values.boolean(False), "'True'", values.boolean(True)),
        (values.boolean(False), "'yes'", values.string("yes")),
        (values.boolean(False), "1", values.long(1)),
        (values.uuid(GUID), "'00000000-0000-0000-0000-000000000001'", values.uuid(uuid.UUID(int=1))),
        (values.uuid(GUID), "'x'", values.string("x")),
        (values.timestamp(5), "'1970-01-01T00:00:01.5Z'", values.timestamp(1500)),
        (values.timestamp(5), "'1970-01-01 01:00:00+01:00'", values.timestamp(0)),
        (values.timestamp(5), "'tomorrow'", values.string("tomorrow")),
        (values.timestamp(5), "7", values.long(7)),
        (values.timestamp(5), "@moment", values.timestamp(1)),
        (datetime_offset(5), "'1970-01-01'", datetime_offset(EPOCH_TICKS)),
        (timespan(5), "'0:2:0'", timespan(120 * 10**7)),
        (timespan(5), "'-1.02:03:04.5'", timespan(-(93784 * 10**7 + 5 * 10**6))),
        (timespan(5), "'3'", timespan(3 * 86400 * 10**7)),
        (timespan(5), "'24:00:00'", values.string("24:00:00")),
        (timespan(5), "'0:60:0'", values.string("0:60:0")),
        (timespan(5), "7", values.long(7)),
        (uri("http://a"), "'http://b'", uri("http://b")),
        (uri("http://a"), "7", values.long(7)),
        (values.char("a"), "'b'", values.char("b")),
        (values.char("a"), "'bc'", values.string("bc")),
        (values.char("a"), "7", values.long(7)),
        (values.symbol("a"), "'b'", values.symbol("b")),
        (values.symbol("a"), "'ü'", values.string("ü")),
        (values.symbol("a"), "@span", timespan(1)),
        # text for what was text
        (values.string("a"), "7", values.string("7")),
        (values.string("a"), "2.0", values.string("2")),
        (values.string("a"), "2.5", values.string("2.5")),
        (values.string("a"), "TRUE", values.string("True")),
        (values.string("a"), "@guid", values.string(str(GUID))),
        (values.string("a"), "@moment", values.string("1970-01-01T00:00:00.001000Z")),
        (values.string("a"), "@letter", values.string("x")),
        (values.string("a"), "@symbol", values.string("x")),
        (values.string("a"), "@span", timespan(1)),
        (values.string("a"), "@never", datetime_offset(-(2**62))),
        # what nothing becomes
        (values.binary(b"a"), "'b'", values.string("b")),
        (values.int_(1), "@infinity", values.double(float("inf"))),
        (values.int_(1), "@nan", None),
    ],
)
def test_set_converts_to_the_existing_type_if_possible(existing: Value, expression: str, result: Value) -> None:
    nan = values.double(float("nan"))
    parameters = {
        "moment": datetime_offset(EPOCH_TICKS + 10_000),
        "guid": values.uuid(GUID),
        "letter": values.char("x"),
        "symbol": values.symbol("x"),
        "span": timespan(1),
        "never": datetime_offset(-(2**62)),
        "infinity": values.double(float("inf")),
        "nan": nan,
    }
    properties = applied(f"SET a = {expression}", parameters=parameters, a=existing)
    assert properties.user_values == {"a": nan if result is None else result}


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("SET sys.TimeToLive = '0:2:0'", "TimeToLive", values.uint(120_000)),
        ("SET sys.timetolive = @span", "TimeToLive", values.uint(1_000)),
        ("SET sys.ScheduledEnqueueTimeUtc = '1970-01-01T00:00:05Z'", "ScheduledEnqueueTimeUtc", values.timestamp(5000)),
        ("SET sys.Label = 'red'", "Subject", values.string("red")),
        ("SET sys.CorrelationId = 5", "CorrelationId", values.string("5")),
        ("SET sys.ForcePersistence = TRUE", "ForcePersistence", values.boolean(True)),
        ("SET sys.TransactionPartitionKey = 'k'", "ViaPartitionKey", values.string("k")),
    ],
)
def test_system_properties_are_set_in_their_own_type(text: str, name: str, value: Value) -> None:
    assert applied(text, parameters={"span": timespan(10**7)}).system_values == {name: value}


def test_newid_makes_a_message_id() -> None:
    message_id = applied("SET sys.MessageId = newid()").system_values["MessageId"]
    assert message_id == values.string(str(uuid.UUID(str(message_id.payload))))


def test_system_properties_are_removed_by_either_name() -> None:
    assert applied("REMOVE sys.Label", system={"Subject": values.string("x")}).system_values == {}


def test_a_time_to_live_can_be_read_and_kept() -> None:
    before = {"TimeToLive": values.uint(1_000)}
    properties = applied("SET [original-ttl] = sys.TimeToLive; SET sys.TimeToLive = '1'", system=before)
    assert properties.user_values == {"original-ttl": timespan(10**7)}
    assert properties.system_values == {"TimeToLive": values.uint(86_400_000)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SET sys.TimeToLive = priority", "got a long, expected a timespan"),
        ("SET sys.TimeToLive = @negative", "out of range"),
        ("SET sys.ScheduledEnqueueTimeUtc = 'a' + 'b'", "got a string, expected a timestamp"),
        ("SET a = sys.Lable", "unknown system property"),
        ("SET a = 1 / 0", "division by zero"),
    ],
)
def test_statements_that_cannot_be_applied_report_the_reason(text: str, message: str) -> None:
    with pytest.raises(RuleEvaluationError, match=message):
        applied(text, parameters={"negative": timespan(-1)}, priority=values.long(1))


def test_text_too_long_for_a_number_stays_text() -> None:
    long_text = Value(0xB1, "9" * 5000)
    assert applied("SET a = b", a=values.int_(1), b=long_text).user_values["a"] == long_text
