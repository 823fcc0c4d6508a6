"""
The rules in management requests and their answers.

Source: Microsoft Learn, "AMQP request/response operations", "Rule operations"; @azure/service-bus for the descriptors.
"""

from busway_broker import errors
from busway_broker.core.rule_book import RuleDefinition
from busway_broker.entity_fields import CORRELATION
from busway_broker.errors import Refusal
from busway_broker.protocol.requests import Arguments
from shared.amqp.values import NULL, Value, described, int_, list_, map_, string, timestamp, ulong
from shared.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    RuleSyntaxError,
    TrueFilter,
    parse_action,
    parse_filter,
)

_RULE = 0x0000_0137_0000_0004
_EMPTY_ACTION = 0x0000_0137_0000_0005
_SQL_ACTION = 0x0000_0137_0000_0006
_SQL_FILTER = 0x0000_0013_7000_0006
_TRUE_FILTER = 0x0000_0013_7000_0007
_FALSE_FILTER = 0x0000_0013_7000_0008
_CORRELATION_FILTER = 0x0000_0013_7000_0009
_COMPATIBILITY_LEVEL = 20


def read(name: str, description: Arguments) -> RuleDefinition:
    """Return the rule that a request describes; a Refusal(ARGUMENT_ERROR) shows what is wrong with its text."""
    filter_text = action_text = None
    try:
        selects: Filter = TrueFilter()
        if "sql-filter" in description:
            filter_text = Arguments.of(description.value("sql-filter")).text("expression")
            selects = parse_filter(filter_text)
        elif "correlation-filter" in description:
            selects = _correlation_filter(Arguments.of(description.value("correlation-filter")))
        action = None
        if "sql-rule-action" in description:
            action_text = Arguments.of(description.value("sql-rule-action")).optional_text("expression")
            action = parse_action(action_text) if action_text else None
    except RuleSyntaxError as error:
        raise Refusal(errors.ARGUMENT_ERROR, f"rule {name}: {error}") from error
    return RuleDefinition(Rule(name, selects, action), filter_text, action_text if action else None)


def _correlation_filter(arguments: Arguments) -> CorrelationFilter:
    names = {attribute: attribute.replace("_", "-") for attribute in CORRELATION.values()} | {"subject": "label"}
    texts = {attribute: arguments.optional_text(name) for attribute, name in names.items()}
    return CorrelationFilter(**texts, properties=arguments.mapping("properties"))


def describe(definition: RuleDefinition) -> Value:
    """Return a rule as answers describe it."""
    created_at = timestamp(definition.created_at)
    name = string(definition.rule.name)
    return _described(_RULE, [_filter(definition), _action(definition.action_text), name, created_at])


def _filter(definition: RuleDefinition) -> Value:
    selects = definition.rule.filter
    match selects:
        case TrueFilter():
            return _described(_TRUE_FILTER, [])
        case FalseFilter():
            return _described(_FALSE_FILTER, [])
        case CorrelationFilter():
            texts = [getattr(selects, attribute) for attribute in CORRELATION.values()]
            properties = map_((string(name), value) for name, value in selects.properties.items())
            items = [NULL if text is None else string(text) for text in texts]
            return _described(_CORRELATION_FILTER, [*items, properties if selects.properties else NULL])
        case _:
            return _described(_SQL_FILTER, [string(definition.filter_text or str(selects)), int_(_COMPATIBILITY_LEVEL)])


def _action(text: str | None) -> Value:
    if text is None:
        return _described(_EMPTY_ACTION, [])
    return _described(_SQL_ACTION, [string(text), int_(_COMPATIBILITY_LEVEL)])


def _described(code: int, items: list[Value]) -> Value:
    return described(ulong(code), list_(items))
