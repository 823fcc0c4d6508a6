"""
The limits of Microsoft's emulators, for files that must also work there.

1. A setting beyond these limits is a problem, and so is a key that only this broker has.
2. The defaults are those of the emulators: messages live for an hour, the window of duplicate detection is 20 seconds.
   A value that equals Azure's default counts as not set.
3. While the broker runs, an entity holds 100 MB, a message has at most 256 KB, and a namespace accepts 10 connections.
   An entity, or all subscriptions of a topic together, accepts 200 receivers: the emulator counts concurrent receives,
   and a receiver has one.

Source: Microsoft Learn, "Overview of the Azure Service Bus emulator" and "Overview of the Azure Event Hubs emulator",
"Usage quotas" and "Quotas and limits"; the Config.json that the emulators ship with.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

from busway_broker.config import (
    STANDARD_MESSAGE_SIZE,
    HubConfig,
    NamespaceConfig,
    QueueConfig,
    SubscriptionConfig,
    TopicConfig,
)
from shared.errors import Problem
from shared.rules import CorrelationFilter

MAX_CONNECTIONS: Final = 10
MAX_RECEIVERS: Final = 200

_SERVICE_BUS, _EVENT_HUBS = "sbemulatorns", "emulatorNs1"
_HINT = "the emulator refuses it"
_MAX_ENTITIES, _MAX_SUBSCRIPTIONS, _MAX_RULES = 50, 50, 1000
_MAX_CORRELATION_FILTERS, _MAX_SQL_FILTERS = 1000, 20
_MAX_HUBS, _MAX_CONSUMER_GROUPS, _MAX_PARTITIONS = 10, 20, 32
_MAX_DELIVERY_COUNT = 10
_MAX_SIZE = 100  # megabytes
_HOUR, _MINUTE, _SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
_DUPLICATE_WINDOW = 20 * _SECOND

# Keys of this broker that the emulators do not have.
_UNSUPPORTED = {
    QueueConfig: ("enable_partitioning", "max_message_size", "max_size", "status"),
    TopicConfig: ("enable_partitioning", "max_message_size", "max_size", "status"),
    SubscriptionConfig: ("dead_lettering_on_filter_evaluation_exceptions", "status"),
    HubConfig: ("message_retention", "retention_size", "status"),
    NamespaceConfig: (
        "accepts_entra_tokens",
        "copy_delay",
        "counts_lag",
        "deferred_expire",
        "disable_local_auth",
        "expires_lazily",
        "geo_replicated",
        "lock_group_size",
        "links",
        "max_message_size",
        "pairing",
        "port",
        "public_network_access",
        "released_go_last",
        "shared_access_keys",
    ),
}

type _Entity = QueueConfig | TopicConfig | SubscriptionConfig | HubConfig | NamespaceConfig


def problems_of(namespaces: Iterable[NamespaceConfig], path: str) -> Iterator[Problem]:
    """Yield a problem for everything in the *namespaces* of the file *path* that an emulator refuses."""
    namespaces = list(namespaces)
    event_hubs = [namespace for namespace in namespaces if namespace.hubs]
    service_bus = [namespace for namespace in namespaces if not namespace.hubs]
    for kind, name in ((service_bus, _SERVICE_BUS), (event_hubs, _EVENT_HUBS)):
        if len(kind) > 1:
            yield Problem(path, f"has {len(kind)} namespaces of one kind", "an emulator serves one")
        for namespace in kind:
            where = f"{path}({namespace.name})"
            if namespace.name != name:
                yield Problem(where, f"is named {namespace.name}", f"the emulator's namespace is named {name}")
            yield from _unsupported(namespace, where)
            yield from _entities(namespace, where)


def _entities(namespace: NamespaceConfig, path: str) -> Iterator[Problem]:
    count = len(namespace.queues) + len(namespace.topics)
    yield from _at_most(count, _MAX_ENTITIES, "queues and topics", path)
    yield from _at_most(len(namespace.hubs), _MAX_HUBS, "event hubs", path)
    for queue in namespace.queues:
        yield from _messages(queue, f"{path}.{queue.name}", 5 * _SECOND)
        yield from _duplicates(queue, f"{path}.{queue.name}")
    for topic in namespace.topics:
        yield from _topic(topic, f"{path}.{topic.name}")
    for hub in namespace.hubs:
        where = f"{path}.{hub.name}"
        yield from _unsupported(hub, where)
        yield from _at_most(hub.partition_count, _MAX_PARTITIONS, "partitions", where)
        yield from _at_most(len(hub.consumer_groups), _MAX_CONSUMER_GROUPS, "consumer groups", where)


def _topic(topic: TopicConfig, path: str) -> Iterator[Problem]:
    yield from _unsupported(topic, path)
    yield from _time_to_live(topic, path)
    yield from _duplicates(topic, path)
    yield from _at_most(len(topic.subscriptions), _MAX_SUBSCRIPTIONS, "subscriptions", path)
    filters = [rule.filter for subscription in topic.subscriptions for rule in subscription.rules]
    correlation = [each for each in filters if isinstance(each, CorrelationFilter)]
    yield from _at_most(len(correlation), _MAX_CORRELATION_FILTERS, "correlation filters", path)
    yield from _at_most(len(filters) - len(correlation), _MAX_SQL_FILTERS, "SQL filters", path)
    for subscription in topic.subscriptions:
        where = f"{path}.{subscription.name}"
        yield from _messages(subscription, where, _MINUTE)
        yield from _at_most(len(subscription.rules), _MAX_RULES, "rules", where)


def _messages(entity: QueueConfig | SubscriptionConfig, path: str, shortest_lock: timedelta) -> Iterator[Problem]:
    yield from _unsupported(entity, path)
    yield from _time_to_live(entity, path)
    yield from _within(entity.lock_duration, shortest_lock, 5 * _MINUTE, "LockDuration", path)
    yield from _at_most(entity.max_delivery_count, _MAX_DELIVERY_COUNT, "as MaxDeliveryCount", path)


def _time_to_live(entity: QueueConfig | TopicConfig | SubscriptionConfig, path: str) -> Iterator[Problem]:
    if entity.default_message_time_to_live is not None:
        duration = entity.default_message_time_to_live
        yield from _within(duration, 5 * _MINUTE, _HOUR, "DefaultMessageTimeToLive", path)


def _duplicates(entity: QueueConfig | TopicConfig, path: str) -> Iterator[Problem]:
    if not _is_default(entity, "duplicate_detection_history_time_window"):
        window = entity.duplicate_detection_history_time_window
        yield from _within(window, 5 * _SECOND, 5 * _MINUTE, "DuplicateDetectionHistoryTimeWindow", path)


def _unsupported(entity: _Entity, path: str) -> Iterator[Problem]:
    for name in _UNSUPPORTED[type(entity)]:
        if not _is_default(entity, name):
            yield Problem(path, f"has {name}", "the emulator does not have this key")


def _is_default(entity: _Entity, name: str) -> bool:
    return bool(getattr(entity, name) == getattr(type(entity)(name=entity.name), name))


def _at_most(count: int, limit: int, what: str, path: str) -> Iterator[Problem]:
    if count > limit:
        yield Problem(path, f"has {count} {what}, expected at most {limit}", _HINT)


def _within(duration: timedelta, least: timedelta, most: timedelta, key: str, path: str) -> Iterator[Problem]:
    if not least <= duration <= most:
        yield Problem(path, f"has {duration} as {key}, expected {least} to {most}", _HINT)


def limited(namespace: NamespaceConfig) -> NamespaceConfig:
    """Return a namespace with the emulators' limits and defaults."""
    return replace(
        namespace,
        queues=tuple(_limited(queue) for queue in namespace.queues),
        topics=tuple(
            replace(
                _limited(topic),
                subscriptions=tuple(_with_time_to_live(subscription) for subscription in topic.subscriptions),
            )
            for topic in namespace.topics
        ),
        hubs=tuple(replace(hub, message_retention=_HOUR) for hub in namespace.hubs),
        max_message_size=STANDARD_MESSAGE_SIZE,
        max_connections=MAX_CONNECTIONS,
        max_receivers=MAX_RECEIVERS,
    )


def _limited[Config: (QueueConfig, TopicConfig)](entity: Config) -> Config:
    window = entity.duplicate_detection_history_time_window
    if _is_default(entity, "duplicate_detection_history_time_window"):
        window = _DUPLICATE_WINDOW
    return replace(_with_time_to_live(entity), max_size=_MAX_SIZE, duplicate_detection_history_time_window=window)


def _with_time_to_live[Config: (QueueConfig, TopicConfig, SubscriptionConfig)](entity: Config) -> Config:
    return replace(entity, default_message_time_to_live=entity.default_message_time_to_live or _HOUR)
