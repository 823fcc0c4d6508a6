"""The rules of a subscription in a Config.json."""

from busway_broker.config import DEFAULT_RULE
from busway_broker.config_reader import Reader
from busway_broker.entity_fields import CORRELATION, NO_CONDITION
from shared.amqp.values import FALSE, NULL, TRUE, Value, double, long, string
from shared.rules import CorrelationFilter, Filter, Rule, RuleSyntaxError, parse_action, parse_filter

_SQL, _CORRELATION = "Sql", "Correlation"
_KEYS = {_SQL: "SqlFilter", _CORRELATION: "CorrelationFilter"}
"""Where the filter of each type is."""


def read_rule(reader: Reader) -> Rule:
    """Return the rule that an object describes, and note its problems."""
    name = reader.child_name("rule")
    if not reader.has("Properties"):
        return Rule(name, DEFAULT_RULE.filter)
    properties = reader.child("Properties")
    selects = _read_filter(properties)
    action = None
    if properties.has("Action"):
        statement = properties.child("Action")
        text = statement.optional_text("SqlExpression")
        try:
            action = parse_action(text) if text else None
        except RuleSyntaxError as error:
            statement.problem(str(error))
        statement.finish()
    properties.finish()
    return Rule(name, selects, action)


def _read_filter(properties: Reader) -> Filter:
    given = [kind for kind, key in _KEYS.items() if properties.has(key)]
    kind = properties.optional_text("FilterType")
    selects: Filter = DEFAULT_RULE.filter
    if kind in given:
        child = properties.child(_KEYS[kind])
        selects = _read_sql_filter(child) if kind == _SQL else _read_correlation_filter(child)
    elif kind is None and given == [_SQL]:
        selects = _read_sql_filter(properties.child(_KEYS[_SQL]))
    elif given:
        has = f"there is a {_KEYS[given[0]]}: say {given[0]}" if len(given) == 1 else f"expected {' or '.join(_KEYS)}"
        properties.problem("is missing" if kind is None else f"is {kind}", has, "FilterType")
    elif kind in _KEYS:
        properties.problem("is missing", f"a rule of type {kind} needs it", _KEYS[kind])
    elif kind is not None:
        properties.problem(f"is {kind}", f"expected {' or '.join(_KEYS)}", "FilterType")
    properties.ignore(*_KEYS.values())
    return selects


def _read_sql_filter(reader: Reader) -> Filter:
    text = reader.optional_text("SqlExpression")
    if text is None:
        reader.problem("is missing", "expected an SQL expression such as 1=1", "SqlExpression")
    selects: Filter = DEFAULT_RULE.filter
    try:
        selects = parse_filter(text or "1=1")
    except RuleSyntaxError as error:
        reader.problem(str(error))
    reader.finish()
    return selects


def _read_correlation_filter(reader: Reader) -> CorrelationFilter:
    properties = {}
    for name, value in reader.mapping("Properties").items():
        try:
            properties[name] = _value(value)
        except ValueError as error:
            reader.problem(str(error), key=f"Properties.{name}")
    config = CorrelationFilter(
        **{attribute: reader.optional_text(name) for name, attribute in CORRELATION.items()},
        properties=properties,
    )
    if config == CorrelationFilter():
        reader.problem(NO_CONDITION, "name at least one property with its value")
    reader.finish()
    return config


def _value(value: object) -> Value:
    match value:
        case bool():
            return TRUE if value else FALSE
        case int():
            return long(value)
        case float():
            return double(value)
        case None:
            return NULL
        case _:
            return string(str(value))
