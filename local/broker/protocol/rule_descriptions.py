"""
Rules as management requests describe them, and as their answers do.

Source: Microsoft Learn, "AMQP request/response operations", "Rule operations"; @azure/service-bus for the descriptors.
"""

from local.broker import errors
from local.broker.errors import Refusal
from local.broker.protocol.arguments import Arguments
from shared.amqp.values import NULL, Value, described, int_, list_, map_, string, timestamp, ulong
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

_RULE = 0x0000_0137_0000_0004
_EMPTY_ACTION = 0x0000_0137_0000_0005
_SQL_ACTION = 0x0000_0137_0000_0006
_SQL_FILTER = 0x0000_0013_7000_0006
_TRUE_FILTER = 0x0000_0013_7000_0007
_FALSE_FILTER = 0x0000_0013_7000_0008
_CORRELATION_FILTER = 0x0000_0013_7000_0009
_COMPATIBILITY_LEVEL = 20


def read(name: str, description: Arguments) -> Rule:
    """Return the rule that a request describes; a Refusal(ARGUMENT_ERROR) shows what is wrong with its text."""
    try:
        selects: Filter = TrueFilter()
        if "sql-filter" in description:
            selects = parse_filter(Arguments.of(description.value("sql-filter")).text("expression"))
        elif "correlation-filter" in description:
            selects = _correlation_filter(Arguments.of(description.value("correlation-filter")))
        action = None
        if "sql-rule-action" in description:
            text = Arguments.of(description.value("sql-rule-action")).optional_text("expression")
            action = parse_action(text) if text else None
    except RuleSyntaxError as error:
        raise Refusal(errors.ARGUMENT_ERROR, f"rule {name}: {error}") from error
    return Rule(name, selects, action)


def _correlation_filter(arguments: Arguments) -> CorrelationFilter:
    return CorrelationFilter(
        content_type=arguments.optional_text("content-type"),
        correlation_id=arguments.optional_text("correlation-id"),
        message_id=arguments.optional_text("message-id"),
        reply_to=arguments.optional_text("reply-to"),
        reply_to_session_id=arguments.optional_text("reply-to-session-id"),
        session_id=arguments.optional_text("session-id"),
        subject=arguments.optional_text("label"),
        to=arguments.optional_text("to"),
        properties=arguments.mapping("properties"),
    )


def describe(rule: Rule) -> Value:
    """Return a rule as answers describe it; the time it was created is not known to the broker."""
    return _described(_RULE, [_filter(rule.filter), _action(rule.action), string(rule.name), timestamp(0)])


def _filter(selects: Filter) -> Value:
    match selects:
        case TrueFilter():
            return _described(_TRUE_FILTER, [])
        case FalseFilter():
            return _described(_FALSE_FILTER, [])
        case CorrelationFilter():
            texts = (
                selects.correlation_id,
                selects.message_id,
                selects.to,
                selects.reply_to,
                selects.subject,
                selects.session_id,
                selects.reply_to_session_id,
                selects.content_type,
            )
            properties = map_((string(name), value) for name, value in selects.properties.items())
            items = [NULL if text is None else string(text) for text in texts]
            return _described(_CORRELATION_FILTER, [*items, properties if selects.properties else NULL])
        case _:
            return _described(_SQL_FILTER, [string(str(selects)), int_(_COMPATIBILITY_LEVEL)])


def _action(action: Action | None) -> Value:
    if action is None:
        return _described(_EMPTY_ACTION, [])
    return _described(_SQL_ACTION, [string(str(action)), int_(_COMPATIBILITY_LEVEL)])


def _described(code: int, items: list[Value]) -> Value:
    return described(ulong(code), list_(items))
