"""
Comparison and arithmetic on typed values, promoted as C# promotes numbers.

1. Null and incompatible types are not compared: the result is unknown, not an error. '1' is not 1.
2. Numbers that C# cannot compare (a long with a ulong) are compared exactly; a decimal becomes a double to be compared
   with a float or a double.
3. Integer arithmetic that leaves its type, a division of integers by zero and operands that are not numbers are
   `RuleEvaluationError`s.
4. Strings are compared by code point; booleans, uuids, addresses and binaries are equal or not, and have no order.

Source: C# language specification, "Binary numeric promotions"; Microsoft Learn, "Subscription Rule SQL Filter Syntax".
"""

import math
import operator
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

from shared.amqp import values
from shared.amqp.values import Value
from shared.rules.decimals import ARITHMETIC, decimal_of, decimal_value
from shared.rules.errors import RuleEvaluationError
from shared.rules.syntax import Comparator, Operator
from shared.rules.value_types import (
    DECIMALS,
    INTEGERS,
    NUMBERS,
    SIGNED_INTEGERS,
    TEXTS,
    datetime_offset,
    ticks_of,
    timespan,
    timestamp_at,
    type_of,
)

type Number = int | float | Decimal

# Any: both operands are of one Python type by then, and which one the families below decide.
COMPARATORS: dict[Comparator, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_INSTANTS = frozenset(["timestamp", "datetime-offset"])
_TIMES = _INSTANTS | {"timespan"}
_UNORDERED = frozenset(["boolean", "uuid", "uri", "binary"])
_INTEGER_VALUES = {"int": values.int_, "uint": values.uint, "long": values.long, "ulong": values.ulong}
_FLOAT = struct.Struct(">f")


def compare(comparator: Comparator, left: Value, right: Value) -> bool | None:
    """Return the result of a comparison; None (unknown) for null and for incompatible types."""
    left_type, right_type = type_of(left), type_of(right)
    holds = COMPARATORS[comparator]
    if left_type in NUMBERS and right_type in NUMBERS:
        return _compare_numbers(comparator, left, left_type, right, right_type)
    if left_type in TEXTS and right_type in TEXTS:
        return holds(left.payload, right.payload)
    if left_type in _INSTANTS and right_type in _INSTANTS:
        return holds(ticks_of(left), ticks_of(right))
    if left_type != right_type:
        return None
    if left_type == "timespan":
        return holds(ticks_of(left), ticks_of(right))
    if left_type in _UNORDERED and comparator in ("=", "<>"):
        return holds(_content(left), _content(right))
    return None


def _content(value: Value) -> object:
    # Only the text of an address is compared, not the encoding of its descriptor.
    return value.payload.value.payload if isinstance(value.payload, values.Described) else value.payload


def _compare_numbers(comparator: Comparator, left: Value, left_type: str, right: Value, right_type: str) -> bool | None:
    first, second = number_of(left), number_of(right)
    if not (left_type in INTEGERS and right_type in INTEGERS):
        if _is_not_finite_decimal(first) or _is_not_finite_decimal(second):
            return None  # .NET's decimal has neither infinity nor NaN
        promoted = _promoted(left_type, right_type)
        first, second = _as(promoted, first), _as(promoted, second)
    return COMPARATORS[comparator](first, second)


def number_of(value: Value) -> Number:
    """Return the number in a value of a numeric type; of a char, as in C#, its code."""
    kind = value.kind
    if kind in DECIMALS:
        return decimal_of(kind, cast("bytes", value.payload))
    if kind == "char":
        return ord(cast("str", value.payload))
    return cast("int | float", value.payload)


def compute(symbol: Operator, left: Value | None, right: Value | None, where: str) -> Value | None:
    """Return the result of an operator, None if an operand is unknown or null; *where* names the rule in errors."""
    if left is None or right is None or left.payload is None or right.payload is None:
        return None
    left_type, right_type = type_of(left), type_of(right)
    try:
        if left_type in NUMBERS and right_type in NUMBERS:
            return _compute_numbers(symbol, left, left_type, right, right_type)
        result = _compute_others(symbol, left, left_type, right, right_type)
    except ZeroDivisionError as error:
        raise RuleEvaluationError(f"{where}: got a division by zero, expected another divisor") from error
    except (ArithmeticError, ValueError) as error:
        problem = f"{where}: got {left_type} {symbol} {right_type} exceed its type, expected a result within it"
        raise RuleEvaluationError(problem) from error
    if result is None:
        raise RuleEvaluationError(f"{where}: got {left_type} {symbol} {right_type}, expected two numbers")
    return result


def _compute_others(symbol: Operator, left: Value, left_type: str, right: Value, right_type: str) -> Value | None:
    """Return the operators of .NET's strings and times, None for other types."""
    if symbol == "+" and left_type in TEXTS and right_type in TEXTS:
        return values.string(cast("str", left.payload) + cast("str", right.payload))
    if symbol not in ("+", "-"):
        return None
    if symbol == "-" and left_type in _INSTANTS and right_type in _INSTANTS:
        return timespan(ticks_of(left) - ticks_of(right))
    if right_type != "timespan" or left_type not in _TIMES:
        return None
    ticks = ticks_of(left) + ticks_of(right) if symbol == "+" else ticks_of(left) - ticks_of(right)
    match left_type:
        case "timestamp":
            return timestamp_at(ticks)
        case "datetime-offset":
            return datetime_offset(ticks)
        case _:
            return timespan(ticks)


def _compute_numbers(symbol: Operator, left: Value, left_type: str, right: Value, right_type: str) -> Value:
    promoted = _promoted(left_type, right_type)
    first, second = _as(promoted, number_of(left)), _as(promoted, number_of(right))
    if isinstance(first, Decimal) and isinstance(second, Decimal):
        return decimal_value("decimal128", _DECIMAL_OPERATORS[symbol](first, second))
    if isinstance(first, int) and isinstance(second, int):
        return _INTEGER_VALUES[promoted](_INTEGER_OPERATORS[symbol](first, second))
    result = _FLOAT_OPERATORS[symbol](float(first), float(second))
    return values.float32(single(result)) if promoted == "float" else values.double(result)


def _promoted(left: str, right: str) -> str:
    """Return the type in which C# computes with two types."""
    types = {left, right}
    if "double" in types or ("float" in types and types & DECIMALS):
        return "double"
    if "float" in types:
        return "float"
    if types & DECIMALS:
        return "decimal128"
    if "ulong" in types and not types & SIGNED_INTEGERS:
        return "ulong"
    if types & {"long", "ulong"} or ("uint" in types and types & SIGNED_INTEGERS):
        return "long"
    return "uint" if "uint" in types else "int"


def _as(promoted: str, number: Number) -> Number:
    match promoted:
        case "double":
            return float(number)
        case "float":
            return single(float(number))
        case "decimal128":
            return number if isinstance(number, Decimal) else Decimal(number)
        case _:
            return number


def single(number: float) -> float:
    """Return *number* rounded to 32 bits."""
    try:
        rounded: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return rounded


def _is_not_finite_decimal(number: Number) -> bool:
    return isinstance(number, Decimal) and not number.is_finite()


def _quotient(first: int, second: int) -> int:
    # C# truncates towards zero, Python rounds down.
    quotient = abs(first) // abs(second)
    return quotient if (first < 0) == (second < 0) else -quotient


def _float_quotient(first: float, second: float) -> float:
    if second != 0:
        return first / second
    if first == 0 or math.isnan(first):
        return math.nan
    return math.copysign(math.inf, first) * math.copysign(1, second)


def _float_remainder(first: float, second: float) -> float:
    return math.nan if second == 0 or math.isinf(first) else math.fmod(first, second)


_INTEGER_OPERATORS: dict[Operator, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": lambda first, second: first - second * _quotient(first, second),
}
_FLOAT_OPERATORS: dict[Operator, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _float_quotient,
    "%": _float_remainder,
}
_DECIMAL_OPERATORS: dict[Operator, Callable[[Decimal, Decimal], Decimal]] = {
    "+": ARITHMETIC.add,
    "-": ARITHMETIC.subtract,
    "*": ARITHMETIC.multiply,
    "/": ARITHMETIC.divide,
    "%": ARITHMETIC.remainder,
}
