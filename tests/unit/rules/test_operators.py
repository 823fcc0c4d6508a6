import math
import uuid
from decimal import Decimal
from typing import Literal

import pytest

from shared.amqp import values
from shared.amqp.values import Value
from shared.rules import RuleEvaluationError
from shared.rules.decimals import decimal_value
from shared.rules.operators import compare, compute
from shared.rules.value_types import EPOCH_TICKS, datetime_offset, timespan, type_of, uri

INTEGERS = [values.ubyte, values.ushort, values.uint, values.ulong, values.byte, values.short, values.int_, values.long]


def decimal(text: str, kind: str = "decimal128") -> Value:
    return decimal_value(kind, Decimal(text))


FIVES = [make(5) for make in INTEGERS] + [
    values.float32(5.0),
    values.double(5.0),
    decimal("5", "decimal32"),
    decimal("5.0", "decimal64"),
    decimal("5.00"),
    values.char("\x05"),
]


@pytest.mark.parametrize("left", FIVES, ids=type_of)
@pytest.mark.parametrize("right", FIVES, ids=type_of)
def test_numbers_of_different_types_are_compared_and_added(left: Value, right: Value) -> None:
    assert compare("=", left, right) is True
    assert compare("<", left, right) is False
    total = compute("+", left, right, "test")
    assert total is not None
    assert compare("=", total, values.long(10)) is True


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        # C# turns the long into a double first
        (values.long(2**53 + 1), values.double(2.0**53), True),
        (values.int_(2**24 + 1), values.float32(2.0**24), True),
        (values.long(2**53 + 1), values.long(2**53), False),
        (values.ulong(2**64 - 1), values.long(-1), False),
        (values.float32(0.10000000149011612), values.double(0.1), False),
        (decimal("9.99"), values.double(9.99), True),
        (decimal("0.1"), decimal("0.10", "decimal32"), True),
        (values.double(math.nan), values.double(math.nan), False),
        (values.symbol("a"), values.string("a"), True),
        (values.string("é" * 200), Value(0xB1, "é" * 200), True),
        (Value(0x56, payload=True), values.boolean(True), True),
        (values.uuid(uuid.UUID(int=1)), values.uuid(uuid.UUID(int=1)), True),
        (values.binary(b"a"), values.binary(b"b"), False),
        (uri("http://a"), uri("http://a"), True),
        (timespan(1), timespan(1), True),
        (values.timestamp(1), datetime_offset(EPOCH_TICKS + 10_000), True),
        (values.timestamp(1), datetime_offset(EPOCH_TICKS + 10_001), False),
        (values.string("1"), values.long(1), None),
        (values.string(str(uuid.UUID(int=1))), values.uuid(uuid.UUID(int=1)), None),
        (values.boolean(True), values.long(1), None),
        (values.NULL, values.NULL, None),
        (timespan(1), values.long(1), None),
        (timespan(1), values.timestamp(1), None),
        (values.list_([]), values.list_([]), None),
        (values.described(values.symbol("x:y"), values.long(1)), values.long(1), None),
        (Value(0x94, bytes.fromhex("7c" + "00" * 15)), values.long(1), None),
    ],
)
def test_equality_of_values_of_all_types(left: Value, right: Value, equal: bool | None) -> None:
    assert compare("=", left, right) is equal
    assert compare("<>", left, right) is (None if equal is None else not equal)


@pytest.mark.parametrize(
    ("left", "right", "is_less"),
    [
        (values.ulong(2**64 - 1), values.long(-1), False),
        (decimal("-1E+10"), values.double(0.5), True),
        (values.string("B"), values.string("a"), True),
        (timespan(1), timespan(2), True),
        (values.timestamp(0), datetime_offset(EPOCH_TICKS + 1), True),
        (values.boolean(False), values.boolean(True), None),
        (values.uuid(uuid.UUID(int=1)), values.uuid(uuid.UUID(int=2)), None),
        (uri("a"), uri("b"), None),
        (values.binary(b"a"), values.binary(b"b"), None),
    ],
)
def test_order_of_values_of_all_types(left: Value, right: Value, is_less: bool | None) -> None:
    assert compare("<", left, right) is is_less
    assert compare(">=", left, right) is (None if is_less is None else not is_less)


@pytest.mark.parametrize(
    ("left", "symbol", "right", "result"),
    [
        (values.byte(1), "+", values.short(2), values.int_(3)),
        (values.ubyte(1), "-", values.ushort(2), values.int_(-1)),
        (values.uint(1), "+", values.ubyte(2), values.uint(3)),
        (values.uint(1), "-", values.int_(2), values.long(-1)),
        (values.ulong(1), "+", values.uint(2), values.ulong(3)),
        (values.ulong(1), "-", values.int_(2), values.long(-1)),
        (values.int_(7), "/", values.long(-2), values.long(-3)),
        (values.int_(-7), "%", values.long(2), values.long(-1)),
        (values.int_(7), "%", values.long(-2), values.long(1)),
        (values.char("A"), "+", values.int_(1), values.int_(66)),
        (values.float32(0.5), "+", values.int_(1), values.float32(1.5)),
        (values.float32(0.1), "*", values.float32(3.0), values.float32(0.30000001192092896)),
        (values.float32(3e38), "+", values.float32(3e38), values.float32(math.inf)),
        (values.double(1), "/", values.int_(0), values.double(math.inf)),
        (values.double(-1), "/", values.int_(0), values.double(-math.inf)),
        (values.double(-5.5), "%", values.int_(2), values.double(-1.5)),
        (decimal("0.1"), "+", decimal("0.2"), decimal("0.3")),
        (decimal("0.1"), "*", values.long(3), decimal("0.3")),
        (decimal("0.5"), "+", values.double(0.25), values.double(0.75)),
        (values.string("a"), "+", values.symbol("b"), values.string("ab")),
        (values.timestamp(2), "-", values.timestamp(1), timespan(10_000)),
        (values.timestamp(2), "-", timespan(10_000), values.timestamp(1)),
        (datetime_offset(5), "+", timespan(1), datetime_offset(6)),
        (datetime_offset(EPOCH_TICKS), "-", values.timestamp(0), timespan(0)),
        (timespan(5), "-", timespan(7), timespan(-2)),
        (None, "+", values.long(1), None),
        (values.long(1), "+", values.NULL, None),
    ],
)
def test_arithmetic(left: Value, symbol: Literal["+", "-", "*", "/", "%"], right: Value, result: Value | None) -> None:
    assert compute(symbol, left, right, "test") == result


def test_zero_by_zero_is_not_a_number() -> None:
    zero = values.double(0.0)
    results = [
        compute("/", zero, zero, "test"),
        compute("%", values.double(1.0), zero, "test"),
        compute("%", values.double(math.inf), zero, "test"),
        compute("/", values.double(math.nan), zero, "test"),
    ]
    assert [str(result.payload) for result in results if result is not None] == ["nan"] * 4


@pytest.mark.parametrize(
    ("left", "symbol", "right"),
    [
        (values.int_(1), "/", values.int_(0)),
        (values.int_(2**31 - 1), "+", values.int_(1)),
        (values.ulong(2**64 - 1), "+", values.int_(0)),
        (decimal("1"), "/", values.int_(0)),
        (decimal("0"), "/", values.int_(0)),
        (decimal("9E+6144"), "*", values.int_(10)),
        (timespan(2**63 - 1), "+", timespan(1)),
        (values.string("a"), "-", values.string("b")),
        (values.string("a"), "+", values.int_(1)),
        (values.boolean(True), "+", values.int_(1)),
        (timespan(1), "*", values.int_(2)),
        (values.timestamp(1), "+", values.timestamp(1)),
        (values.uuid(uuid.UUID(int=1)), "-", timespan(1)),
    ],
)
def test_arithmetic_without_result_fails(left: Value, symbol: Literal["+", "-", "*", "/", "%"], right: Value) -> None:
    with pytest.raises(RuleEvaluationError, match="test: got"):
        compute(symbol, left, right, "test")
