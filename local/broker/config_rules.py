"""The rules of a subscription in a Config.json."""

from local.broker.config import DEFAULT_RULE
from local.broker.config_reader import Reader
from shared.amqp.values import FALSE, NULL, TRUE, Value, double, long, string
from shared.rules import CorrelationFilter, Filter, Rule, RuleSyntaxError, parse_action, parse_filter


def read_rule(reader: Reader) -> Rule:
    """Return the rule that an object describes, and note its problems."""
    name = reader.name()
    properties = reader.child("Properties")
    kind = properties.text("FilterType", "Sql")
    selects: Filter = DEFAULT_RULE.filter
    if kind == "Correlation":
        selects = _read_correlation_filter(properties.child("CorrelationFilter"))
    elif kind == "Sql":
        sql = properties.child("SqlFilter")
        try:
            selects = parse_filter(sql.text("SqlExpression", "1=1"))
        except RuleSyntaxError as error:
            sql.problem(str(error))
        sql.finish()
    else:
        properties.problem(f"FilterType is {kind}", "expected Correlation or Sql")
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
    reader.finish()
    return Rule(name, selects, action)


def _read_correlation_filter(reader: Reader) -> CorrelationFilter:
    pairs = reader.mapping("Properties")
    config = CorrelationFilter(
        content_type=reader.optional_text("ContentType"),
        correlation_id=reader.optional_text("CorrelationId"),
        message_id=reader.optional_text("MessageId"),
        reply_to=reader.optional_text("ReplyTo"),
        reply_to_session_id=reader.optional_text("ReplyToSessionId"),
        session_id=reader.optional_text("SessionId"),
        subject=reader.optional_text("Label"),
        to=reader.optional_text("To"),
        properties={name: _value(value) for name, value in pairs.items()},
    )
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
