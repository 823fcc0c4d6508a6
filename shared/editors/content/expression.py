"""
JMESPath expressions over JSON, with decimal numbers and additional functions.

An expression always ends, and has access only to the body and the properties of the message. Selected numbers keep
every digit; computed numbers have 34, like IEEE 754 decimal128.

Source: jmespath.org, specification and "Custom functions".
"""

import json
from collections.abc import Callable, Iterator, Mapping
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

import jmespath
from jmespath.exceptions import JMESPathError, JMESPathTypeError
from jmespath.functions import TYPES_MAP, Functions, signature
from jmespath.visitor import Options, TreeInterpreter

from shared.amqp.values import Value
from shared.codecs.json import ExactJson
from shared.codecs.json_writing import is_number, write
from shared.editors.content.flattening import flatten
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.rules import SYSTEM_PROPERTIES

FAILED = "ExpressionFailed"

_DECIMAL = "Decimal"
_ARITHMETIC = Context(prec=34, rounding=ROUND_HALF_EVEN, traps=[InvalidOperation, DivisionByZero, Overflow])
# A rounded number is written with all of its places, so their number must be limited.
_MOST_PLACES = 1000
_SYSTEM = "sys."
_LARGEST_TEXT = 16 * 2**20

type Node = Any
"""A node of the library's tree: a dict with type, children and value."""


class Expression:
    """An expression, compiled once; evaluating it leaves no state."""

    def __init__(self, text: str) -> None:
        """Compile *text*; raises ValueError for an invalid expression, or an unknown function."""
        try:
            self._tree: Node = _exact(jmespath.compile(text).parsed)
            for node in _nodes(self._tree):
                _check(node)
        except JMESPathError as error:
            raise ValueError(f"is not a JMESPath expression: {_one_line(error)}") from error
        except RecursionError as error:
            raise ValueError("is a JMESPath expression that is nested too deeply") from error
        self._functions = _Functions()
        self._interpreter = _Interpreter(Options(custom_functions=self._functions))

    def of(self, value: ExactJson, message: Message) -> ExactJson:
        """Return the result for the body *value* of *message*; raises MessageRejected."""
        self._functions.message = message
        try:
            found: ExactJson = self._interpreter.visit(self._tree, value)
        except MessageRejected:
            raise
        except JMESPathTypeError as error:
            # Its text quotes the value.
            expected = " or ".join(error.expected_types)
            problem = f"{error.function_name}() got {_type_name(error.actual_type)}, expected {expected}"
            raise MessageRejected(FAILED, problem) from None
        except RecursionError as error:
            raise MessageRejected(FAILED, "the body is nested too deeply for the expression") from error
        except Exception as error:  # noqa: BLE001 - the library passes on any error of Python
            problem = f"the expression cannot be evaluated for this body ({type(error).__name__})"
            raise MessageRejected(FAILED, problem) from None
        finally:
            self._functions.message = None
        return found


class _Interpreter(TreeInterpreter):
    """The library's interpreter, which raises where the specification returns null."""

    def visit_comparator(self, node: Node, value: ExactJson) -> bool | None:
        """Return null if a text is compared with a number."""
        try:
            compared: bool | None = super().visit_comparator(node, value)
        except TypeError:
            return None
        return compared


class _Functions(Functions):
    """The functions of the specification, for decimals, and additional ones."""

    message: Message | None = None

    def _get_allowed_pytypes(self, types: list[str]) -> tuple[list[str], list[tuple[str, ...]]]:
        allowed, items = super()._get_allowed_pytypes(types)  # type: ignore[misc]  # the stubs leave it out
        if "number" in types:
            allowed.append(_DECIMAL)
        return allowed, [(*each, _DECIMAL) if "int" in each else each for each in items]

    def _convert_to_jmespath_type(self, pyobject: str) -> str:
        if pyobject == _DECIMAL:
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

    @signature({"types": ["number"]})
    def _func_abs(self, number: int | Decimal) -> int | Decimal:
        return number.copy_abs() if isinstance(number, Decimal) else abs(number)

    @signature({"types": ["number"]})
    def _func_ceil(self, number: int | Decimal) -> int | Decimal:
        return number.to_integral_value(ROUND_CEILING) if isinstance(number, Decimal) else number

    @signature({"types": ["number"]})
    def _func_floor(self, number: int | Decimal) -> int | Decimal:
        return number.to_integral_value(ROUND_FLOOR) if isinstance(number, Decimal) else number

    @signature({"types": ["array-number"]})
    def _func_sum(self, numbers: list[int | Decimal]) -> int | Decimal:
        total: int | Decimal = 0
        for each in numbers:
            total = _computed(_ARITHMETIC.add, int.__add__, total, each)
        return total

    @signature({"types": ["array-number"]})
    def _func_avg(self, numbers: list[int | Decimal]) -> int | Decimal | None:
        return self._func_divide(self._func_sum(numbers), len(numbers)) if numbers else None

    # Additional functions: arithmetic

    @signature({"types": ["number"]}, {"types": ["number"]})
    def _func_add(self, left: int | Decimal, right: int | Decimal) -> int | Decimal:
        return _computed(_ARITHMETIC.add, int.__add__, left, right)

    @signature({"types": ["number"]}, {"types": ["number"]})
    def _func_subtract(self, left: int | Decimal, right: int | Decimal) -> int | Decimal:
        return _computed(_ARITHMETIC.subtract, int.__sub__, left, right)

    @signature({"types": ["number"]}, {"types": ["number"]})
    def _func_multiply(self, left: int | Decimal, right: int | Decimal) -> int | Decimal:
        return _computed(_ARITHMETIC.multiply, int.__mul__, left, right)

    @signature({"types": ["number"]}, {"types": ["number"]})
    def _func_divide(self, left: int | Decimal, right: int | Decimal) -> int | Decimal:
        quotient = _ARITHMETIC.divide(Decimal(left), Decimal(right))
        exponent = quotient.as_tuple().exponent
        is_whole = isinstance(exponent, int) and exponent == 0
        return int(quotient) if is_whole else quotient

    @signature({"types": ["number"]}, {"types": ["number"]})
    def _func_round(self, number: int | Decimal, places: int | Decimal) -> int | Decimal:
        if not isinstance(places, int) or not 0 <= places <= _MOST_PLACES:
            raise MessageRejected(
                FAILED, f"round() got an invalid number of places, expected a whole number from 0 to {_MOST_PLACES}"
            )
        if isinstance(number, int):
            return number
        exponent = number.as_tuple().exponent
        is_longer = isinstance(exponent, int) and exponent < -places
        return number.quantize(Decimal(1).scaleb(-places), context=_ARITHMETIC) if is_longer else number

    # Objects

    @signature({"types": ["object"]}, {"types": ["array-string"]})
    def _func_omit(self, value: dict[str, ExactJson], names: list[str]) -> ExactJson:
        left_out = frozenset(names)
        return {name: each for name, each in value.items() if name not in left_out}

    @signature({"types": ["object"]})
    def _func_items(self, value: dict[str, ExactJson]) -> ExactJson:
        return [[name, each] for name, each in value.items()]

    @signature({"types": ["array-array"]})
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

    @signature({"types": ["string"]})
    def _func_lower(self, text: str) -> str:
        return text.lower()

    @signature({"types": ["string"]})
    def _func_upper(self, text: str) -> str:
        return text.upper()

    @signature({"types": ["string"]})
    def _func_trim(self, text: str) -> str:
        return text.strip()

    @signature({"types": ["string"]}, {"types": ["string"]})
    def _func_split(self, text: str, separator: str) -> ExactJson:
        return [*text.split(separator)]

    @signature({"types": ["string"]}, {"types": ["string"]}, {"types": ["string"]})
    def _func_replace(self, text: str, old: str, new: str) -> str:
        size = len(text) + (len(new) - len(old)) * text.count(old)
        if size > max(_LARGEST_TEXT, len(text)):
            raise MessageRejected("ResultTooLarge", f"replace() makes a text of more than {_LARGEST_TEXT} characters")
        return text.replace(old, new)

    # The message

    @signature({"types": ["string"]})
    def _func_property(self, name: str) -> ExactJson:
        if self.message is None:
            raise MessageRejected(FAILED, "property() is not available without a message")
        properties = RuleProperties(self.message)
        lower = name.lower()
        if not lower.startswith(_SYSTEM):
            return _as_json(name, properties.user(lower))
        known = SYSTEM_PROPERTIES.get(lower[len(_SYSTEM) :])
        if known is None:
            raise MessageRejected(FAILED, "property() got the name of an unknown broker property")
        return _as_json(name, properties.system(known.name))


def _computed(
    decimals: Callable[[Decimal, Decimal], Decimal],
    integers: Callable[[int, int], int],
    left: int | Decimal,
    right: int | Decimal,
) -> int | Decimal:
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


def _exact(node: Node) -> Node:
    """Return the tree of an expression with decimals instead of floats."""
    return {
        **node,
        **({"value": _exact_literal(node["value"])} if node["type"] == "literal" else {}),
        "children": [_exact(each) if isinstance(each, dict) else each for each in node["children"]],
    }


def _exact_literal(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, dict):
        return {name: _exact_literal(each) for name, each in value.items()}
    return [_exact_literal(each) for each in value] if isinstance(value, list) else value


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for each in node["children"]:
        if isinstance(each, dict):
            yield from _nodes(each)


def _check(node: Node) -> None:
    """Raise ValueError for errors that the library reports only when it evaluates."""
    if node["type"] == "slice" and node["children"][2] == 0:
        raise ValueError("has a slice with the step 0")
    if node["type"] == "literal" and not _is_finite(node["value"]):
        raise ValueError("has a literal that is not a finite number")
    if node["type"] != "function_expression":
        return
    name, given = node["value"], len(node["children"])
    table: Mapping[str, Any] = _Functions.FUNCTION_TABLE
    if name not in table:
        raise ValueError(f"calls {name}(), expected one of {', '.join(sorted(table))}")
    expected = table[name]["signature"]
    is_variadic = bool(expected) and expected[-1].get("variadic", False)
    if given < len(expected) or (given > len(expected) and not is_variadic):
        at_least = "at least " if is_variadic else ""
        raise ValueError(f"calls {name}() with {given} arguments, expected {at_least}{len(expected)}")


def _is_finite(value: Any) -> bool:  # noqa: ANN401 - any JSON
    if isinstance(value, Decimal):
        return value.is_finite()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(_is_finite, inner))


def _type_name(name: str) -> str:
    """Return the JMESPath name of a type, for which the library uses that or Python's name."""
    return "number" if name == _DECIMAL else TYPES_MAP.get(name, "another type" if name == "unknown" else name)


def _no_number(_: str) -> None:
    raise ValueError


def _one_line(error: JMESPathError) -> str:
    """Return the library's text up to its drawing of the expression."""
    return str(error).partition(", for expression")[0].partition("\n")[0]
