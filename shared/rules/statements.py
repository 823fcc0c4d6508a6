"""
Statements of actions compiled into closures.

SET keeps the type of a property if the new value converts to it; SET to NULL or to something unknown makes an
application property null and unsets a system property.

Source: Microsoft Learn, "Subscription Rule SQL Action Syntax"; Azure/azure-service-bus issue 180.
"""

from collections.abc import Callable

from shared.amqp import values
from shared.amqp.values import Value
from shared.rules.conversion import converted
from shared.rules.errors import RuleEvaluationError
from shared.rules.expressions import Parameters, Read, compile_expression
from shared.rules.properties import SYSTEM_PROPERTIES, MutableProperties, SystemProperty, header_of_timespan
from shared.rules.syntax import Property, Scope, Set, Statement
from shared.rules.value_types import type_of

type Change = Callable[[MutableProperties, Parameters], None]


def compile_statement(node: Statement) -> Change:
    """Return the function that carries out *node*."""
    return _set(node) if isinstance(node, Set) else _remove(node.property)


def system_value(system_property: SystemProperty, value: Value) -> Value:
    """Return *value* as the type of the system property, or a RuleEvaluationError."""
    fitting = converted(value, system_property.type)
    if fitting is None:
        expected = f"expected a {system_property.type} or a string that reads as one"
        raise RuleEvaluationError(f"SET sys.{system_property.name}: got a {type_of(value)}, {expected}")
    if system_property.type != "timespan":
        return fitting
    try:
        return header_of_timespan(fitting)
    except ValueError as error:
        problem = f"SET sys.{system_property.name}: got a timespan out of range, expected {error}"
        raise RuleEvaluationError(problem) from error


def _set(node: Set) -> Change:
    read = compile_expression(node.expression)
    if node.property.scope is Scope.SYSTEM:
        return _set_system(SYSTEM_PROPERTIES[node.property.name.lower()], read)
    name = node.property.name
    folded = name.lower()

    def set_user(properties: MutableProperties, parameters: Parameters) -> None:
        value = read(properties, parameters)
        if value is None:
            value = values.NULL
        existing = properties.user(folded)
        if existing is not None:
            value = converted(value, type_of(existing)) or value
        properties.set_user(name, value)

    return set_user


def _remove(target: Property) -> Change:
    if target.scope is Scope.USER:
        return lambda properties, _: properties.remove_user(target.name)
    name = SYSTEM_PROPERTIES[target.name.lower()].name
    return lambda properties, _: properties.remove_system(name)


def _set_system(system_property: SystemProperty, read: Read) -> Change:
    name = system_property.name

    def set_system(properties: MutableProperties, parameters: Parameters) -> None:
        value = read(properties, parameters)
        if value is None or value.payload is None:
            properties.remove_system(name)
        else:
            properties.set_system(name, system_value(system_property, value))

    return set_system
