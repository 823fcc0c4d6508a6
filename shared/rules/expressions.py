"""
Expressions compiled into closures: evaluating a rule calls functions and does not walk the tree.

1. An expression returns a value, or None if it is unknown; operators treat a null property as unknown.
2. Evaluating an undefined system property is an error; one that is not set is unknown.

Source: Microsoft Learn, "Subscription Rule SQL Filter Syntax", "Property evaluation semantics".
"""

import uuid
from collections.abc import Callable, Mapping
from typing import assert_never, cast

from shared.amqp import values
from shared.amqp.values import Value
from shared.rules.errors import RuleEvaluationError
from shared.rules.operators import compute
from shared.rules.properties import SYSTEM_PROPERTIES, Properties, timespan_of_header
from shared.rules.syntax import (
    Chain,
    Expression,
    Literal,
    NewId,
    Parameter,
    Predicate,
    Property,
    PropertyNamed,
    Scope,
    Signed,
)
from shared.rules.value_types import TEXTS, timespan, type_of

type Parameters = Mapping[str, Value]
type Read = Callable[[Properties, Parameters], Value | None]


def compile_expression(node: Expression) -> Read:
    """Return the function that evaluates *node*."""
    match node:
        case Literal(value):
            constant = None if value.payload is None else value
            return lambda _, __: constant
        case Property():
            return compile_property(node)
        case Parameter(name):
            return _parameter(name)
        case NewId():
            return lambda _, __: values.uuid(uuid.uuid4())
        case PropertyNamed(name):
            return _property_named(node, compile_expression(name))
        case Signed():
            return _signed(node)
        case Chain():
            return _chain(node)
        case _:
            assert_never(node)


def compile_property(node: Property) -> Read:
    """Return the function that returns a property, None if it is not set."""
    if node.scope is Scope.USER:
        name = node.name.lower()
        return lambda properties, _: properties.user(name)
    if node.name.lower() not in SYSTEM_PROPERTIES:

        def fault(_: Properties, __: Parameters) -> Value | None:
            raise RuleEvaluationError(f"{node}: unknown system property, expected one that Service Bus defines")

        return fault
    system_property = SYSTEM_PROPERTIES[node.name.lower()]
    system_name = system_property.name
    if system_property.type != "timespan":
        return lambda properties, _: properties.system(system_name)

    def duration(properties: Properties, _: Parameters) -> Value | None:
        header = properties.system(system_name)
        return None if header is None else timespan_of_header(header)

    return duration


def _parameter(name: str) -> Read:
    folded = name.lower()

    def parameter(_: Properties, parameters: Parameters) -> Value | None:
        for key, value in parameters.items():
            if key.removeprefix("@").lower() == folded:
                return value
        raise RuleEvaluationError(f"@{name}: unknown parameter, expected a value supplied with the rule")

    return parameter


def _property_named(node: PropertyNamed, read_name: Read) -> Read:
    def property_named(properties: Properties, parameters: Parameters) -> Value | None:
        name = known(read_name(properties, parameters))
        return None if name is None else properties.user(text_of(name, node).lower())

    return property_named


def _signed(node: Signed) -> Read:
    read = compile_expression(node.operand)
    sign, where = node.sign, str(node)

    def signed(properties: Properties, parameters: Parameters) -> Value | None:
        value = read(properties, parameters)
        if value is None:
            return None
        # C# promotes the operand of a sign to an int, as it does that of an addition.
        zero = timespan(0) if type_of(value) == "timespan" else values.int_(0)
        return compute(sign, zero, value, where)

    return signed


def _chain(node: Chain) -> Read:
    first = compile_expression(node.first)
    rest = [(operator, compile_expression(operand)) for operator, operand in node.rest]
    where = str(node)

    def chain(properties: Properties, parameters: Parameters) -> Value | None:
        result = first(properties, parameters)
        for operator, read in rest:
            result = compute(operator, result, read(properties, parameters), where)
        return result

    return chain


def text_of(value: Value, node: Expression | Predicate) -> str:
    """Return the string in *value*; a RuleEvaluationError that names *node* if it is not a string."""
    if value.kind not in TEXTS:
        raise RuleEvaluationError(f"{node}: got a {type_of(value)}, expected a string")
    return cast("str", value.payload)


def known(value: Value | None) -> Value | None:
    """Return *value*, or None if it is null."""
    return None if value is None or value.payload is None else value
