"""
Conditions compiled into closures; each yields True, False or None for unknown.

1. Comparisons with an unknown value are unknown; NOT, AND and OR follow the truth tables of the documentation.
2. IN is unknown only if its left side is: an item that is unknown or of another type is not equal.
3. LIKE of anything but a string is unknown; a pattern that is not a string is an error.

Source: Microsoft Learn, "Subscription Rule SQL Filter Syntax", "Property evaluation semantics".
"""

from collections.abc import Callable
from typing import assert_never, cast

from shared.amqp.values import Payload, Value
from shared.rules.errors import RuleEvaluationError
from shared.rules.expressions import Parameters, Read, compile_expression, compile_property, known, text_of
from shared.rules.like import Test, matcher
from shared.rules.operators import COMPARATORS, compare
from shared.rules.properties import Properties
from shared.rules.syntax import And, Comparator, Comparison, Exists, In, IsNull, Like, Literal, Not, Or, Predicate
from shared.rules.value_types import BOOLEAN_CODES, DOUBLE_CODES, INTEGER_CODES, INTEGER_CODES_WITHIN_DOUBLE, TEXT_CODES

type Condition = Callable[[Properties, Parameters], bool | None]

_MIRRORED: dict[Comparator, Comparator] = {"=": "=", "<>": "<>", ">": "<", ">=": "<=", "<": ">", "<=": ">="}


def compile_condition(node: Predicate) -> Condition:
    """Return the function that evaluates *node*."""
    match node:
        case Comparison():
            return _comparison(node)
        case IsNull(property_, is_negated):
            read = compile_property(property_)
            return lambda properties, parameters: (known(read(properties, parameters)) is None) is not is_negated
        case Exists(property_):
            read = compile_property(property_)
            return lambda properties, parameters: read(properties, parameters) is not None
        case In():
            return _in(node)
        case Like():
            return _like(node)
        case Not(operand):
            return _not(compile_condition(operand))
        case And(operands):
            return _joined([compile_condition(operand) for operand in operands], final=False)
        case Or(operands):
            return _joined([compile_condition(operand) for operand in operands], final=True)
        case _:
            assert_never(node)


def _not(operand: Condition) -> Condition:
    def negated(properties: Properties, parameters: Parameters) -> bool | None:
        truth = operand(properties, parameters)
        return None if truth is None else not truth

    return negated


def _joined(operands: list[Condition], *, final: bool) -> Condition:
    """Return a conjunction, which False ends, or a disjunction, which True ends."""

    def joined(properties: Properties, parameters: Parameters) -> bool | None:
        result: bool | None = not final
        for operand in operands:
            truth = operand(properties, parameters)
            if truth is final:
                return final
            if truth is None:
                result = None
        return result

    return joined


def _comparison(node: Comparison) -> Condition:
    left, comparator, right = node.left, node.comparator, node.right
    if isinstance(left, Literal) and not isinstance(right, Literal):
        left, comparator, right = right, _MIRRORED[comparator], left
    read = compile_expression(left)
    if isinstance(right, Literal):
        return _comparison_with(read, comparator, right.value)
    read_right = compile_expression(right)

    def comparison(properties: Properties, parameters: Parameters) -> bool | None:
        first, second = read(properties, parameters), read_right(properties, parameters)
        return None if first is None or second is None else compare(comparator, first, second)

    return comparison


def _comparison_with(read: Read, comparator: Comparator, constant: Value) -> Condition:
    """Return the comparison with a constant, without promotion for the usual types."""
    holds = COMPARATORS[comparator]
    usual = _usual_payloads(comparator, constant)

    def comparison(properties: Properties, parameters: Parameters) -> bool | None:
        value = read(properties, parameters)
        if value is None:
            return None
        code, payload = value
        expected = usual.get(code)
        return compare(comparator, value, constant) if expected is None else holds(payload, expected)

    return comparison


def _usual_payloads(comparator: Comparator, constant: Value) -> dict[int, Payload]:
    """Return the payload that *constant* is promoted to, by the format code of the other side, for common types."""
    match constant.payload:
        case bool() as truth:
            return dict.fromkeys(BOOLEAN_CODES if comparator in ("=", "<>") else (), truth)
        case int() as number:
            return dict.fromkeys(INTEGER_CODES, number) | {code: float(number) for code in DOUBLE_CODES}
        case float() as number:
            return dict.fromkeys(DOUBLE_CODES | INTEGER_CODES_WITHIN_DOUBLE, number)
        case str() as text:
            return dict.fromkeys(TEXT_CODES, text)
        case _:
            return {}


def _in(node: In) -> Condition:
    read = compile_expression(node.operand)
    items = [compile_expression(item) for item in node.items]
    constants = [item.value for item in node.items if isinstance(item, Literal)]
    are_texts = len(constants) == len(items) and all(constant.code in TEXT_CODES for constant in constants)
    texts = {constant.payload for constant in constants} if are_texts else None
    is_negated = node.is_negated

    def membership(properties: Properties, parameters: Parameters) -> bool | None:
        value = known(read(properties, parameters))
        if value is None:
            return None
        if texts is not None and value.code in TEXT_CODES:
            return (value.payload in texts) is not is_negated
        for read_item in items:
            item = read_item(properties, parameters)
            if item is not None and compare("=", value, item):
                return not is_negated
        return is_negated

    return membership


def _like(node: Like) -> Condition:
    read, read_test = compile_expression(node.operand), _like_test(node)
    is_negated = node.is_negated

    def likeness(properties: Properties, parameters: Parameters) -> bool | None:
        value, test = read(properties, parameters), read_test(properties, parameters)
        if value is None or test is None or value.code not in TEXT_CODES:
            return None
        return (test(cast("str", value.payload)) is None) is is_negated

    return likeness


def _like_test(node: Like) -> Callable[[Properties, Parameters], Test | None]:
    """Return the function that returns a test for the pattern, None if pattern or escape are unknown."""
    read_pattern = compile_expression(node.pattern)
    read_escape = None if node.escape is None else compile_expression(node.escape)

    def pattern_test(properties: Properties, parameters: Parameters) -> Test | None:
        pattern = known(read_pattern(properties, parameters))
        if read_escape is None:
            return None if pattern is None else _test(node, pattern, None)
        escape = known(read_escape(properties, parameters))
        return None if pattern is None or escape is None else _test(node, pattern, escape)

    if node.escape is None and isinstance(node.pattern, Literal):
        pattern = known(node.pattern.value)
        constant = None if pattern is None else _test(node, pattern, None)
        return lambda _, __: constant
    return pattern_test


def _test(node: Like, pattern: Value, escape: Value | None) -> Test:
    try:
        return matcher(text_of(pattern, node), None if escape is None else text_of(escape, node))
    except ValueError as error:
        raise RuleEvaluationError(f"{node}: invalid pattern, expected {error}") from error
