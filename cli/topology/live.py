"""Reads what a namespace has: Service Bus over its administration API, Event Hubs over AMQP."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleFilter,
    TrueRuleFilter,
)

from cli.topology.model import EVERYTHING, Entity, Kind, Name, Namespace, Setting, SubscriptionRule
from local.broker.durations import parse_duration
from shared.amqp.values import FALSE, TRUE, Value, double, long, string, timestamp
from shared.rules import CorrelationFilter

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

NEVER = timedelta(days=3650)
"""Azure writes TimeSpan.MaxValue for never; ten years are as good."""

QUEUE_SETTINGS = (
    "requires_session",
    "lock_duration",
    "max_delivery_count",
    "default_message_time_to_live",
    "dead_lettering_on_message_expiration",
    "requires_duplicate_detection",
    "duplicate_detection_history_time_window",
    "enable_partitioning",
    "max_size_in_megabytes",
    "max_message_size_in_kilobytes",
    "forward_to",
    "forward_dead_lettered_messages_to",
    "status",
    "auto_delete_on_idle",
    "user_metadata",
)
TOPIC_SETTINGS = (
    "default_message_time_to_live",
    "requires_duplicate_detection",
    "duplicate_detection_history_time_window",
    "enable_partitioning",
    "max_size_in_megabytes",
    "max_message_size_in_kilobytes",
    "status",
    "auto_delete_on_idle",
    "user_metadata",
)
SUBSCRIPTION_SETTINGS = (
    "requires_session",
    "lock_duration",
    "max_delivery_count",
    "default_message_time_to_live",
    "dead_lettering_on_message_expiration",
    "dead_lettering_on_filter_evaluation_exceptions",
    "forward_to",
    "forward_dead_lettered_messages_to",
    "status",
    "auto_delete_on_idle",
    "user_metadata",
)
_DURATIONS = frozenset(
    (
        "lock_duration",
        "default_message_time_to_live",
        "duplicate_detection_history_time_window",
        "auto_delete_on_idle",
    )
)
_READERS = 8


def read_service_bus(client: "ServiceBusAdministrationClient", topics: Iterable[str] | None = None) -> Namespace:
    """
    Return the entities of a namespace, with the subscriptions and rules of *topics* only; by default of all.

    Raises the SDK's errors. Subscriptions and rules are a request for each topic and subscription.
    """
    wanted = None if topics is None else {each.lower() for each in topics}
    found = [_entity(Kind.QUEUE, (each.name,), each, QUEUE_SETTINGS) for each in client.list_queues()]
    names = []
    for topic in client.list_topics():
        found.append(_entity(Kind.TOPIC, (topic.name,), topic, TOPIC_SETTINGS))
        if wanted is None or topic.name.lower() in wanted:
            names.append(topic.name)
    with ThreadPoolExecutor(_READERS) as pool:
        lists = pool.map(lambda topic: [(topic, each) for each in client.list_subscriptions(topic)], names)
        subscriptions = [pair for pairs in lists for pair in pairs]
        rules = pool.map(lambda pair: [_rule(each) for each in client.list_rules(pair[0], pair[1].name)], subscriptions)
        for (topic_name, subscription), its_rules in zip(subscriptions, rules, strict=True):
            parts = (topic_name, subscription.name)
            found.append(_entity(Kind.SUBSCRIPTION, parts, subscription, SUBSCRIPTION_SETTINGS, tuple(its_rules)))
    return Namespace(found)


def _entity(
    kind: Kind,
    parts: tuple[str, ...],
    properties: object,
    names: Iterable[str],
    rules: tuple[SubscriptionRule, ...] = (),
) -> Entity:
    return Entity(Name(kind, parts), {name: _setting(name, getattr(properties, name, None)) for name in names}, rules)


def _setting(name: str, value: Any) -> Setting:  # noqa: ANN401 - whatever the SDK returns
    if name in _DURATIONS:
        length = parse_duration(value) if isinstance(value, str) else value
        return None if length is None or length >= NEVER else length
    if name.startswith("forward_"):
        # An address: sb://HOST/ENTITY.
        return (urlsplit(value).path.lstrip("/") if "://" in value else value) if value else None
    if name == "status":
        return str(getattr(value, "value", value) or "Active")
    if isinstance(value, bool | int) or value is None:
        return value
    return str(value)


def _rule(properties: RuleProperties) -> SubscriptionRule:
    selects: str | CorrelationFilter
    parameters: dict[str, Any] = {}
    match properties.filter:
        case CorrelationRuleFilter() as correlation:
            selects = _correlation(correlation)
        case TrueRuleFilter():
            selects = EVERYTHING
        case FalseRuleFilter():
            selects = "1=0"
        case SqlRuleFilter() as sql:
            selects = sql.sql_expression or EVERYTHING
            parameters |= sql.parameters or {}
        case _:
            selects = EVERYTHING
    action = properties.action
    text = None if action is None else action.sql_expression or None
    if action is not None:
        parameters |= action.parameters or {}
    shown = tuple((name, repr(value)) for name, value in parameters.items())
    return SubscriptionRule(properties.name, selects, text, shown)


def _correlation(rule: CorrelationRuleFilter) -> CorrelationFilter:
    return CorrelationFilter(
        content_type=rule.content_type,
        correlation_id=rule.correlation_id,
        message_id=rule.message_id,
        reply_to=rule.reply_to,
        reply_to_session_id=rule.reply_to_session_id,
        session_id=rule.session_id,
        subject=rule.label,
        to=rule.to,
        properties={name: _value(value) for name, value in (rule.properties or {}).items()},
    )


def _value(value: Any) -> Value:  # noqa: ANN401 - the SDK's type for properties
    match value:
        case bool():
            return TRUE if value else FALSE
        case int():
            return long(value)
        case float():
            return double(value)
        case _ if hasattr(value, "timestamp"):
            return timestamp(round(value.timestamp() * 1000))
        case _:
            return string(str(value))


def read_hubs(names: Iterable[Name], ask: Callable[[Name], int | None]) -> Namespace:
    """Return those hubs and consumer groups of *names* that exist; *ask* returns the partitions, None if missing."""
    return Namespace(_hubs(sorted(names, key=lambda each: (each.kind, each.key)), ask))


def _hubs(names: list[Name], ask: Callable[[Name], int | None]) -> Iterator[Entity]:
    missing: set[tuple[Kind, str]] = set()
    for name in sorted(names, key=lambda each: each.kind is Kind.CONSUMER_GROUP):
        if name.parent is not None and name.parent.key in missing:
            continue
        count = ask(name)
        if count is None:
            missing.add(name.key)
        else:
            yield Entity(name, {"partition_count": count} if name.kind is Kind.HUB else {})
