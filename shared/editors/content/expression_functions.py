"""The functions of JMESPath expressions: those of the specification, for decimals, and additional ones."""

import json
from collections.abc import Callable
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
)
from typing import Any

from jmespath.functions import Functions, signature

from shared.amqp.values import Value
from shared.codecs.json import ExactJson, is_number, write
from shared.editors.content.flattening import flatten
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties

FAILED = "ExpressionFailed"
DECIMAL = "Decimal"
_ARITHMETIC = Context(prec=34, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation, DivisionByZero, Overflow])
# A rounded number is written with all of its places, so their number must be limited.
_MOST_PLACES = 1000
_LARGEST_TEXT = 16 * 2**20


def _takes(*types: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator of a function whose arguments are each of one of JMESPath's *types*."""
    accepted: list[Any] = [{"types": [each]} for each in types]
    return signature(*accepted)


class ExpressionFunctions(Functions):
    """The functions of the specification, for decimals, and additional ones."""

    message: Message | None = None

    def _get_allowed_pytypes(self, types: list[str]) -> tuple[list[str], list[tuple[str, ...]]]:
        allowed, items = super()._get_allowed_pytypes(types)  # type: ignore[misc]  # the stubs leave it out
        if "number" in types:
            allowed.append(DECIMAL)
        return allowed, [(*item, DECIMAL) if "int" in item else item for item in items]

    def _convert_to_jmespath_type(self, pyobject: str) -> str:
        if pyobject == DECIMAL:
            return "number"
        name: str = super()._convert_to_jmespath_type(pyobject)  # type: ignore[misc]  # likewise
        return name

    # Of the specification

    @signature({"types": []})
    def _func_type(self, value: ExactJson) -> str:
        if isinstance(value, Decimal):
            return "number"
        name: str = super()._func_type(value)  # type: ignore[misc]  # likewise
        return name

    @signature({"types": []})
    def _func_to_number(self, value: ExactJson) -> ExactJson:
        if is_number(value):
            return value
        if not isinstance(value, str):
            return None
        try:
            read = json.loads(value, parse_float=Decimal, parse_constant=_no_number)
        except (ValueError, InvalidOperation, RecursionError):
            return None
        return read if is_number(read) else None

    @signature({"types": []})
    def _func_to_string(self, value: ExactJson) -> str:
        return value if isinstance(value, str) else write(value).decode()

    _func_abs = _takes("number")(lambda _, number: number.copy_abs() if isinstance(number, Decimal) else abs(number))
    _func_ceil = _takes("number")(lambda _, number: _whole(number, ROUND_CEILING))
    _func_floor = _takes("number")(lambda _, number: _whole(number, ROUND_FLOOR))

    @_takes("array-number")
    def _func_sum(self, numbers: list[int | Decimal]) -> int | Decimal:
        total: int | Decimal = 0
        for number in numbers:
            total = _computed(_ARITHMETIC.add, int.__add__, total, number)
        return total

    @_takes("array-number")
    def _func_avg(self, numbers: list[int | Decimal]) -> int | Decimal | None:
        return self._func_divide(self._func_sum(numbers), len(numbers)) if numbers else None

    # Additional functions: arithmetic

    _func_add = _takes("number", "number")(lambda _, *two: _computed(_ARITHMETIC.add, int.__add__, *two))
    _func_subtract = _takes("number", "number")(lambda _, *two: _computed(_ARITHMETIC.subtract, int.__sub__, *two))
    _func_multiply = _takes("number", "number")(lambda _, *two: _computed(_ARITHMETIC.multiply, int.__mul__, *two))

    @_takes("number", "number")
    def _func_divide(self, left: int | Decimal, right: int | Decimal) -> int | Decimal:
        quotient = _ARITHMETIC.divide(Decimal(left), Decimal(right))
        exponent = quotient.as_tuple().exponent
        is_whole = isinstance(exponent, int) and exponent == 0
        return int(quotient) if is_whole else quotient

    @_takes("number", "number")
    def _func_round(self, number: int | Decimal, places: int | Decimal) -> int | Decimal:
        if not isinstance(places, int) or not 0 <= places <= _MOST_PLACES:
            problem = f"round() got an invalid number of places, expected a whole number from 0 to {_MOST_PLACES}"
            raise MessageRejected(FAILED, problem)
        if isinstance(number, int):
            return number
        exponent = number.as_tuple().exponent
        is_longer = isinstance(exponent, int) and exponent < -places
        return number.quantize(Decimal(1).scaleb(-places), context=_ARITHMETIC) if is_longer else number

    # Objects

    _func_items = _takes("object")(lambda _, value: [[name, each] for name, each in value.items()])

    @_takes("object", "array-string")
    def _func_omit(self, value: dict[str, ExactJson], names: list[str]) -> ExactJson:
        left_out = frozenset(names)
        return {name: each for name, each in value.items() if name not in left_out}

    @_takes("array-array")
    def _func_from_items(self, pairs: list[list[ExactJson]]) -> ExactJson:
        made: dict[str, ExactJson] = {}
        for pair in pairs:
            if len(pair) != 2 or not isinstance(pair[0], str):  # noqa: PLR2004 - a pair has two
                raise MessageRejected(FAILED, "from_items() got an item that is not a pair of a string and a value")
            made[pair[0]] = pair[1]
        return made

    @signature({"types": ["object", "array"]}, {"types": ["string"]})
    def _func_flatten(self, value: ExactJson, separator: str) -> ExactJson:
        return flatten(value, separator)

    # Texts

    _func_lower = _takes("string")(lambda _, text: text.lower())
    _func_upper = _takes("string")(lambda _, text: text.upper())
    _func_trim = _takes("string")(lambda _, text: text.strip())
    _func_split = _takes("string", "string")(lambda _, text, separator: [*text.split(separator)])

    @_takes("string", "string", "string")
    def _func_replace(self, text: str, old: str, new: str) -> str:
        size = len(text) + (len(new) - len(old)) * text.count(old)
        if size > max(_LARGEST_TEXT, len(text)):
            raise MessageRejected("ResultTooLarge", f"replace() makes a text of more than {_LARGEST_TEXT} characters")
        return text.replace(old, new)

    # The message

    @_takes("string")
    def _func_property(self, name: str) -> ExactJson:
        if self.message is None:
            raise MessageRejected(FAILED, "property() is not available without a message")
        try:
            return _as_json(name, RuleProperties(self.message).named(name))
        except KeyError as error:
            raise MessageRejected(FAILED, "property() got the name of an unknown broker property") from error


type _Number = int | Decimal


def _whole(number: _Number, rounding: str) -> _Number:
    return number.to_integral_value(rounding) if isinstance(number, Decimal) else number


def _computed(
    decimals: Callable[[Decimal, Decimal], Decimal], integers: Callable[[int, int], int], left: _Number, right: _Number
) -> _Number:
    """Return the result, which is exact for two integers."""
    if isinstance(left, int) and isinstance(right, int):
        return integers(left, right)
    return decimals(Decimal(left), Decimal(right))


def _as_json(name: str, value: Value | None) -> ExactJson:
    if value is None:
        return None
    payload = value.payload
    if payload is None or isinstance(payload, (bool, int, str)):
        return payload
    if isinstance(payload, float):
        exact = Decimal(repr(payload))
        if exact.is_finite():
            return exact
    if value.kind == "uuid":
        return str(payload)
    raise MessageRejected(FAILED, f"property {name} is a {value.kind} that JSON cannot represent")


def _no_number(_: str) -> None:
    raise ValueError
