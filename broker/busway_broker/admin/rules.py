"""
Rules as ATOM describes them.

The SQL of a filter or action is returned as the client wrote it. Parameters and properties have XML Schema types.
Source: Microsoft Learn, "Service Bus REST API" (RuleDescription); the SDKs' administration clients.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from busway_broker import errors
from busway_broker.admin.descriptions import INSTANCE, SERVICE_BUS
from busway_broker.admin.xml import Element, join, tag, text_tag
from busway_broker.core.rule_book import RuleDefinition
from busway_broker.entity_fields import CORRELATION, NO_CONDITION, iso_time
from busway_broker.errors import Refusal
from shared.amqp.values import FALSE, TRUE, Value, double, int_, long, string, timestamp
from shared.durations import format_duration, parse_duration
from shared.rules import (
    Action,
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    RuleSyntaxError,
    TrueFilter,
    parse_action,
    parse_filter,
)
from shared.rules.value_types import TICKS_PER_MILLISECOND, ticks_of, timespan, type_of

_NAMESPACES = f'xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}"'
_XML_SCHEMA = "http://www.w3.org/2001/XMLSchema"
_PAIR = "KeyValueOfstringanyType"
_TICK = timedelta(microseconds=1)
_TICKS_PER_MICROSECOND = 10
_MAX_INT = 2**31 - 1


def read_rule(name: str, description: Element) -> RuleDefinition:
    """Return the rule in a description; Refusal(ARGUMENT_ERROR) if it is invalid."""
    filter_element, action_element = description.child("Filter"), description.child("Action")
    parameters, times = _read_pairs(filter_element, "Parameters")
    properties, property_times = _read_pairs(filter_element, "Properties")
    action_parameters, action_times = _read_pairs(action_element, "Parameters")
    try:
        selects, filter_text = _read_filter(filter_element, properties)
        action, action_text = _read_action(action_element)
    except RuleSyntaxError as error:
        raise Refusal(errors.ARGUMENT_ERROR, f"rule {name}: {error}") from error
    rule = Rule(name, selects, action, filter_parameters=parameters, action_parameters=action_parameters)
    filter_times = times | property_times
    return RuleDefinition(rule, filter_text, action_text, filter_times=filter_times, action_times=action_times)


def _read_filter(element: Element | None, properties: Mapping[str, Value]) -> tuple[Filter, str | None]:
    if element is None:
        return TrueFilter(), None
    match element.type:
        case "TrueFilter":
            return TrueFilter(), None
        case "FalseFilter":
            return FalseFilter(), None
        case "SqlFilter":
            text = element.child_text("SqlExpression") or ""
            return parse_filter(text), text
        case "CorrelationFilter":
            texts = {attribute: element.child_text(name) or None for name, attribute in CORRELATION.items()}
            correlation = CorrelationFilter(**texts, properties=properties)
            if correlation == CorrelationFilter():
                raise Refusal(errors.ARGUMENT_ERROR, f"{NO_CONDITION}, expected at least one property with its value")
            return correlation, None
        case other:
            raise Refusal(errors.ARGUMENT_ERROR, f"unknown type of filter '{other}'")


def _read_action(element: Element | None) -> tuple[Action | None, str | None]:
    if element is None or element.type == "EmptyRuleAction":
        return None, None
    if element.type != "SqlRuleAction":
        raise Refusal(errors.ARGUMENT_ERROR, f"unknown type of action '{element.type}'")
    text = element.child_text("SqlExpression") or ""
    return parse_action(text), text


def _read_pairs(element: Element | None, name: str) -> tuple[dict[str, Value], dict[str, str]]:
    """Return the pairs of a list, and the text of each that is a date-time."""
    pairs = None if element is None else element.child(name)
    found: dict[str, Value] = {}
    times: dict[str, str] = {}
    for pair in () if pairs is None else pairs.children:
        key, value = pair.child_text("Key"), pair.child("Value")
        if pair.name != _PAIR or not key or value is None:
            raise Refusal(errors.ARGUMENT_ERROR, f"{name} has a {pair.name}, expected {_PAIR} with Key and Value")
        try:
            found[key] = _read_value(value)
        except (ValueError, OverflowError) as error:
            text = f"{name}: the value of {key} is not a valid {value.type or 'typed value'}: {error}"
            raise Refusal(errors.ARGUMENT_ERROR, text) from error
        if value.type == "dateTime":
            times[key] = value.text
    return found, times


def _read_value(element: Element) -> Value:
    text = element.text
    match element.type:
        case "string":
            return string(text)
        case "int":
            return int_(int(text))
        case "long":
            return long(int(text))
        case "double":
            return double(float(text))
        case "boolean":
            return TRUE if text.strip().lower() == "true" else FALSE
        case "dateTime":
            time = datetime.fromisoformat(text)
            return timestamp(round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))
        case "duration":
            length = parse_duration(text)
            if length is None:
                raise ValueError("it is infinite")
            return timespan(length // _TICK * _TICKS_PER_MICROSECOND)
        case other:
            raise ValueError(f"unknown type '{other}'")


def describe_rule(definition: RuleDefinition) -> str:
    """Return a rule."""
    rule = definition.rule
    return tag(
        "RuleDescription",
        join(
            (
                _filter(definition),
                _action(definition),
                text_tag("CreatedAt", iso_time(definition.created_at)),
                text_tag("Name", rule.name),
            )
        ),
        _NAMESPACES,
    )


def _filter(definition: RuleDefinition) -> str:
    selects = definition.rule.filter
    match selects:
        case TrueFilter():
            return _sql("Filter", "TrueFilter", "1=1", {}, {})
        case FalseFilter():
            return _sql("Filter", "FalseFilter", "1=0", {}, {})
        case CorrelationFilter():
            texts = {name: getattr(selects, attribute) for name, attribute in CORRELATION.items()}
            parts = [text_tag(name, text) for name, text in texts.items() if text is not None]
            pairs = _pairs("Properties", selects.properties, definition.filter_times)
            return tag("Filter", join((*parts, pairs)), 'i:type="CorrelationFilter"')
        case _:
            text = definition.filter_text or str(selects)
            return _sql("Filter", "SqlFilter", text, definition.rule.filter_parameters, definition.filter_times)


def _action(definition: RuleDefinition) -> str:
    if definition.action_text is None:
        return tag("Action", "", 'i:type="EmptyRuleAction"')
    parameters, times = definition.rule.action_parameters, definition.action_times
    return _sql("Action", "SqlRuleAction", definition.action_text, parameters, times)


def _sql(name: str, kind: str, text: str, parameters: Mapping[str, Value], times: Mapping[str, str]) -> str:
    expression = text_tag("SqlExpression", text) + text_tag("CompatibilityLevel", "20")
    return tag(name, join((expression, _pairs("Parameters", parameters, times))), f'i:type="{kind}"')


def _pairs(name: str, pairs: Mapping[str, Value], times: Mapping[str, str]) -> str | None:
    if not pairs:
        return None
    written = (tag(_PAIR, text_tag("Key", key) + _value(value, times.get(key))) for key, value in pairs.items())
    return tag(name, join(written))


def _value(value: Value, time: str | None) -> str:
    """Return a value; a *time* that the client gave is written as it was."""
    kind, text = _typed(value) if time is None else ("dateTime", time)
    # @azure/service-bus takes the prefix i and one of four characters for granted.
    return text_tag("Value", text, f'i:type="d6p1:{kind}" xmlns:d6p1="{_XML_SCHEMA}"')


def _typed(value: Value) -> tuple[str, str]:
    payload = value.payload
    match type_of(value):
        case "boolean":
            return "boolean", "true" if payload else "false"
        case "timestamp" if isinstance(payload, int):
            return "dateTime", iso_time(payload)
        case "timespan":
            return "duration", format_duration(timedelta(milliseconds=ticks_of(value) / TICKS_PER_MILLISECOND))
        case "float" | "double":
            return "double", str(payload)
        case "byte" | "short" | "int" | "long" | "ubyte" | "ushort" | "uint" | "ulong" if isinstance(payload, int):
            return "int" if abs(payload) <= _MAX_INT else "long", str(payload)
        case _:
            return "string", str(payload)
