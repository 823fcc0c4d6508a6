"""
Reads what a namespace has: Service Bus over its administration API, Event Hubs over AMQP.

What an entity holds that is to be deleted is also peeked at: the counts of the administration are seconds old.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    QueueProperties,
    QueueRuntimeProperties,
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    TrueRuleFilter,
)

from cli.topology.model import (
    CORRELATION,
    EVERYTHING,
    SETTINGS,
    Entity,
    Kind,
    Name,
    Namespace,
    Setting,
    SubscriptionRule,
)
from shared.amqp.values import FALSE, TRUE, Value, double, long, string, timestamp
from shared.durations import parse_duration
from shared.errors import TargetRefused, TargetUnavailable
from shared.resend.peek import peek
from shared.resend.places import DEAD_LETTERS, Place
from shared.rules import CorrelationFilter
from shared.rules.value_types import timespan

NEVER = timedelta(days=10_675_198)
"""Azure writes TimeSpan.MaxValue for never, its older templates a day less."""

_DURATIONS = frozenset(
    (
        "lock_duration",
        "default_message_time_to_live",
        "duplicate_detection_history_time_window",
        "auto_delete_on_idle",
    )
)
_READERS = 8
_TICKS_PER_MICROSECOND = 10


def read_service_bus(client: ServiceBusAdministrationClient, topics: Iterable[str] | None = None) -> Namespace:
    """
    Return the entities of a namespace, with the subscriptions and rules of *topics* only; by default of all.

    Raises the SDK's errors. Subscriptions and rules are a request for each topic and subscription.
    """
    wanted = None if topics is None else {each.lower() for each in topics}
    found = [_entity(Kind.QUEUE, (queue.name,), queue) for queue in client.list_queues()]
    names = []
    for topic in client.list_topics():
        found.append(_entity(Kind.TOPIC, (topic.name,), topic))
        if wanted is None or topic.name.lower() in wanted:
            names.append(topic.name)
    with ThreadPoolExecutor(_READERS) as pool:
        lists = pool.map(
            lambda topic: [(topic, subscription) for subscription in client.list_subscriptions(topic)], names
        )
        subscriptions = [pair for pairs in lists for pair in pairs]
        rules = pool.map(lambda pair: [_rule(rule) for rule in client.list_rules(pair[0], pair[1].name)], subscriptions)
        for (topic_name, subscription), its_rules in zip(subscriptions, rules, strict=True):
            parts = (topic_name, subscription.name)
            found.append(_entity(Kind.SUBSCRIPTION, parts, subscription, tuple(its_rules)))
    return Namespace(found)


def _entity(kind: Kind, parts: tuple[str, ...], properties: object, rules: tuple[SubscriptionRule, ...] = ()) -> Entity:
    names = (name for name, known in SETTINGS.items() if kind in known.kinds)
    return Entity(Name(kind, parts), {name: setting_of(name, getattr(properties, name, None)) for name in names}, rules)


def setting_of(name: str, value: Any) -> Setting:  # noqa: ANN401 - whatever the SDK returns
    """Return a property of the SDK as plans compare it."""
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
            fields = {"subject" if name == "label" else name: getattr(correlation, name) for name in CORRELATION}
            values = {name: _value(value) for name, value in (correlation.properties or {}).items()}
            selects = CorrelationFilter(**fields, properties=values)
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


def _value(value: Any) -> Value:  # noqa: ANN401 - the SDK's type for properties
    match value:
        case bool():
            return TRUE if value else FALSE
        case int():
            return long(value)
        case float():
            return double(value)
        case timedelta():
            return timespan(value // timedelta(microseconds=1) * _TICKS_PER_MICROSECOND)
        case _ if hasattr(value, "timestamp"):
            return timestamp(round(value.timestamp() * 1000))
        case _:
            # An element without text is that of an empty text.
            return string(str(value or ""))


async def read_hubs(names: Iterable[Name], ask: Callable[[Name], Awaitable[int | None]]) -> Namespace:
    """Return those hubs and consumer groups of *names* that exist; *ask* returns the partitions, None if missing."""
    found: list[Entity] = []
    missing: set[tuple[Kind, str]] = set()
    for name in sorted(names, key=lambda name: (name.kind is Kind.CONSUMER_GROUP, name.key)):
        if name.parent is None or name.parent.key not in missing:
            count = await ask(name)
            if count is None:
                missing.add(name.key)
            else:
                found.append(Entity(name, {"partition_count": count} if name.kind is Kind.HUB else {}))
    return Namespace(found)


_TRANSFER = "/$Transfer"


def check_is_empty(
    client: ServiceBusAdministrationClient, name: Name, namespace: Place, settings: Mapping[str, str]
) -> None:
    """Raise TargetRefused if a queue, topic or subscription of *namespace* has messages, or cannot be looked into."""
    first = name.parts[0]
    paths: list[str] = []
    if name.kind is Kind.QUEUE:
        paths += _checked(name, client.get_queue(first), client.get_queue_runtime_properties(first), first)
    else:
        wanted = name.parts[1:] or [subscription.name for subscription in client.list_subscriptions(first)]
        if name.kind is Kind.TOPIC:
            paths.append(first)  # its scheduled messages
        for each in wanted:
            counts = client.get_subscription_runtime_properties(first, each)
            path = f"{first}/Subscriptions/{each}"
            paths += _checked(name, client.get_subscription(first, each), counts, path)
    for path in paths:
        try:
            found = asyncio.run(_has_message(namespace._replace(entity=path), settings))
        except TargetUnavailable as error:
            raise TargetRefused(f"{name}: may hold messages: {error}") from error
        if found:
            raise _holds(name, "messages")


def _checked(
    name: Name,
    properties: QueueProperties | SubscriptionProperties,
    counts: QueueRuntimeProperties | SubscriptionRuntimeProperties,
    path: str,
) -> Iterator[str]:
    """Yield the paths to peek at if the *counts* are of none; an entity that forwards cannot be peeked."""
    if (counts.total_message_count or 0) > 0:
        raise _holds(name, f"{counts.total_message_count} messages")
    if not properties.forward_to:
        yield path
    if not properties.forward_dead_lettered_messages_to:
        yield path + DEAD_LETTERS
    yield path + _TRANSFER + DEAD_LETTERS


async def _has_message(place: Place, settings: Mapping[str, str]) -> bool:
    async with contextlib.aclosing(peek(place, settings, most=1)) as messages:
        return await anext(messages, None) is not None


def _holds(name: Name, what: str) -> TargetRefused:
    return TargetRefused(f"{name}: holds {what} (receive or delete those first, then run this again)")
