"""
Queues, topics and subscriptions as ATOM describes them.

Source: Microsoft Learn, "Service Bus REST API" (QueueDescription, TopicDescription, SubscriptionDescription); the
administration clients of azure-servicebus and @azure/service-bus for what they read.
"""

from collections.abc import Iterable
from dataclasses import astuple
from typing import Any

from busway_broker import errors
from busway_broker.admin.xml import Element, join, tag, text_tag
from busway_broker.config import QueueConfig, Right, SharedAccessKey, SubscriptionConfig, TopicConfig
from busway_broker.core.backlog import Counts
from busway_broker.core.entities import Queue, Subscription, Topic
from busway_broker.core.namespace import Namespace
from busway_broker.core.times import milliseconds
from busway_broker.core.usage import Times
from busway_broker.entity_fields import (
    MAX_MESSAGE_SIZE,
    QUEUE_FIELDS,
    SUBSCRIPTION_FIELDS,
    TOPIC_FIELDS,
    Field,
    iso_time,
)
from busway_broker.errors import Refusal
from shared.rules import CorrelationFilter

# Versions of the API are compared as text: they are years and months.
LATEST_VERSION = "2024-05"
MESSAGE_SIZE_SINCE = "2021-05"
FILTER_COUNTS_SINCE = "2024-05"

SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
_NAMESPACES = f'xmlns="{SERVICE_BUS}" xmlns:i="{INSTANCE}"'

# Elements that clients send back unchanged, or that other modules of this package read.
_READ_ONLY = frozenset(
    (
        "AccessedAt",
        "AuthorizationRules",
        "CorrelationFilterCount",
        "CountDetails",
        "CreatedAt",
        "DefaultRuleDescription",
        "EnableSubscriptionPartitioning",
        "EntityAvailabilityStatus",
        "FilteringMessagesBeforePublishing",
        "IsAnonymousAccessible",
        "MessageCount",
        "Name",
        "SizeInBytes",
        "SqlFilterCount",
        "SubscriptionCount",
        "SupportOrdering",
        "UpdatedAt",
    )
)
# An update without these elements does not change them.
_FIXED = ("requires_session", "requires_duplicate_detection", "enable_partitioning", "max_message_size")


def read_queue(name: str, description: Element, present: QueueConfig | None) -> QueueConfig:
    """Return the configuration in a description, which replaces *present*; a Refusal if it is invalid."""
    values = _read(name, description, QUEUE_FIELDS, present)
    return QueueConfig(authorization_rules=_read_keys(description), **values)


def read_topic(name: str, description: Element, present: TopicConfig | None) -> TopicConfig:
    """Return the configuration in a description, as `read_queue` does."""
    values = _read(name, description, TOPIC_FIELDS, present)
    return TopicConfig(authorization_rules=_read_keys(description), **values)


def read_subscription(name: str, description: Element, present: SubscriptionConfig | None) -> SubscriptionConfig:
    """Return the configuration in a description, without its rules, as `read_queue` does."""
    return SubscriptionConfig(**_read(name, description, SUBSCRIPTION_FIELDS, present))


def _read(
    name: str,
    description: Element,
    known: tuple[Field, ...],
    present: QueueConfig | TopicConfig | SubscriptionConfig | None,
) -> dict[str, Any]:
    found = {"name": name} | _values(description, known)
    if present is not None:
        found["name"] = present.name
        for each in _FIXED:
            if hasattr(present, each):
                found.setdefault(each, getattr(present, each))
    return found


def _values(description: Element, fields: tuple[Field, ...]) -> dict[str, object]:
    """Return the values in a description by attribute; Refusal(ARGUMENT_ERROR) for an unknown or invalid element."""
    by_element = {field.element: field for field in fields}
    found = {}
    for child in description.children:
        known = by_element.get(child.name)
        if known is None:
            if child.name not in _READ_ONLY:
                raise Refusal(errors.ARGUMENT_ERROR, f"{description.name} has an unknown element {child.name}")
        elif child.attributes.get("nil") != "true":
            found[known.attribute] = known.value(child.text)
    return found


def describe(namespace: Namespace, entity: Queue | Topic | Subscription, host: str, version: str) -> str:
    """Return the description of an entity with its counts, in a version of the API."""
    now, config = milliseconds(namespace.clock), entity.config
    match entity:
        case Queue():
            name, known = "QueueDescription", QUEUE_FIELDS
            parts: tuple[str, ...] = (
                _keys(entity.config.authorization_rules, entity.times),
                text_tag("IsAnonymousAccessible", "false"),
                text_tag("SizeInBytes", str(entity.size)),
                _counts(entity.backlog.reported_counts(now, entity.incoming.reported.at(now))),
                text_tag("SupportOrdering", "true"),
            )
        case Topic():
            name, known = "TopicDescription", TOPIC_FIELDS
            parts = (
                _keys(entity.config.authorization_rules, entity.times),
                text_tag("FilteringMessagesBeforePublishing", "false"),
                text_tag("IsAnonymousAccessible", "false"),
                text_tag("SizeInBytes", str(entity.size)),
                _count_details(Counts(0, 0, entity.incoming.reported.at(now), 0, 0)),
                text_tag("SubscriptionCount", str(len(entity.subscriptions))),
                _filter_counts(entity) if version >= FILTER_COUNTS_SINCE else "",
            )
        case Subscription():
            name, known = "SubscriptionDescription", SUBSCRIPTION_FIELDS
            parts = (_counts(entity.backlog.reported_counts(now)),)
    largest = None
    if version >= MESSAGE_SIZE_SINCE and not isinstance(entity, Subscription):
        largest = namespace.max_message_size(entity)
    return _describe(name, _configured(config, known, host, largest), *parts, _times(entity.times))


def _filter_counts(topic: Topic) -> str:
    rules = [
        definition.rule
        for subscription in topic.subscriptions.values()
        for definition in subscription.rule_book.definitions
    ]
    correlations = sum(isinstance(rule.filter, CorrelationFilter) for rule in rules)
    counts = {"SqlFilterCount": len(rules) - correlations, "CorrelationFilterCount": correlations}
    return join(text_tag(name, str(count)) for name, count in counts.items())


def describe_namespace(namespace: Namespace) -> str:
    """Return the description of a namespace."""
    created = iso_time(namespace.created_at)
    return _describe(
        "NamespaceInfo",
        text_tag("CreatedTime", created),
        text_tag("MessagingSKU", "Standard"),
        text_tag("ModifiedTime", created),
        text_tag("Name", namespace.name),
        text_tag("NamespaceType", "EventHub" if namespace.hubs else "Messaging"),
    )


def _describe(name: str, *parts: str) -> str:
    return tag(name, join(parts), _NAMESPACES)


def _configured(config: object, known: Iterable[Field], host: str, max_message_size: int | None) -> str:
    parts = []
    for field in known:
        value = getattr(config, field.attribute)
        if field is MAX_MESSAGE_SIZE:
            value = max_message_size
        written = field.write(value, host)
        if written is not None:
            parts.append(text_tag(field.element, written))
    return "".join(parts)


def _times(times: Times) -> str:
    return join(
        (
            text_tag("CreatedAt", iso_time(times.created_at)),
            text_tag("UpdatedAt", iso_time(times.updated_at)),
            text_tag("AccessedAt", iso_time(times.accessed_at)),
            text_tag("EntityAvailabilityStatus", "Available"),
        )
    )


def _counts(counts: Counts) -> str:
    # So it is not the sum of the others once one is negative.
    total = sum(max(number, 0) for number in astuple(counts))
    return text_tag("MessageCount", str(total)) + _count_details(counts)


def _count_details(counts: Counts) -> str:
    numbers = {
        "ActiveMessageCount": counts.active,
        "DeadLetterMessageCount": counts.dead_lettered,
        "ScheduledMessageCount": counts.scheduled,
        "TransferDeadLetterMessageCount": counts.transfer_dead_lettered,
        "TransferMessageCount": 0,
    }
    details = join(text_tag(f"d2p1:{name}", str(number)) for name, number in numbers.items())
    return tag("CountDetails", details, f'xmlns:d2p1="{_COUNTS}"')


# Authorization rules


def _read_keys(description: Element) -> tuple[SharedAccessKey, ...]:
    rules = description.child("AuthorizationRules")
    return () if rules is None else tuple(_read_key(element) for element in rules.children)


def _read_key(rule: Element) -> SharedAccessKey:
    name, key = rule.child_text("KeyName"), rule.child_text("PrimaryKey")
    rights = rule.child("Rights")
    names = [] if rights is None else [element.text for element in rights.children]
    if not name or not key or not names or any(name not in Right for name in names):
        raise Refusal(
            errors.ARGUMENT_ERROR,
            f"an authorization rule needs KeyName, PrimaryKey and Rights, which are {', '.join(Right)}",
        )
    return SharedAccessKey(
        name=name,
        key=key,
        secondary_key=rule.child_text("SecondaryKey"),
        rights=frozenset(Right(name) for name in names),
    )


def _keys(keys: Iterable[SharedAccessKey], times: Times) -> str:
    rules = join(
        tag(
            "AuthorizationRule",
            join(
                (
                    text_tag("ClaimType", "SharedAccessKey"),
                    text_tag("ClaimValue", "None"),
                    tag("Rights", join(text_tag("AccessRights", right) for right in sorted(key.rights))),
                    text_tag("CreatedTime", iso_time(times.created_at)),
                    text_tag("ModifiedTime", iso_time(times.updated_at)),
                    text_tag("KeyName", key.name),
                    text_tag("PrimaryKey", key.key),
                    None if key.secondary_key is None else text_tag("SecondaryKey", key.secondary_key),
                )
            ),
            'i:type="SharedAccessAuthorizationRule"',
        )
        for key in keys
    )
    return tag("AuthorizationRules", rules)
