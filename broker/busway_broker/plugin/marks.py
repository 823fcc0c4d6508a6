"""The entities that the marks of a test declare."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from busway_broker.config import (
    EXPECTED_NAME,
    MAX_PARTITIONS,
    HubConfig,
    LinkLimits,
    NamespaceConfig,
    OnDemand,
    QueueConfig,
    SubscriptionConfig,
    TopicConfig,
    is_entity_name,
)
from busway_broker.config_file import load_config

SERVICE_BUS = "service-bus"
EVENT_HUBS = "event-hubs"

_KEYS = ("queues", "topics", "hubs", "config", "links")


def namespaces_of(marks: Iterable[pytest.Mark], folder: Path) -> list[NamespaceConfig]:
    """
    Return the two namespaces with the entities that *marks* declare; a namespace without any creates them on demand.

    Raises: pytest.UsageError for a mark with other arguments, ConfigError for an invalid file. A relative path of a
    file starts at *folder*.
    """
    queues: list[QueueConfig] = []
    topics: list[TopicConfig] = []
    hubs: list[HubConfig] = []
    links = LinkLimits()
    for mark in marks:
        if mark.args or not mark.kwargs or not mark.kwargs.keys() <= set(_KEYS):
            raise pytest.UsageError(
                f"busway{mark.args or tuple(mark.kwargs)}: expected one of {', '.join(_KEYS)} by name"
            )
        queues += map(_queue, _items(mark.kwargs.get("queues", ())))
        topics += map(_topic, _items(mark.kwargs.get("topics", ())))
        hubs += map(_hub, _items(mark.kwargs.get("hubs", ())))
        links = mark.kwargs.get("links", links)
        if not isinstance(links, LinkLimits):
            raise pytest.UsageError(f"busway: links={links!r}, expected LinkLimits")
        for namespace in load_config([folder / mark.kwargs["config"]]) if "config" in mark.kwargs else ():
            queues += namespace.queues
            topics += namespace.topics
            hubs += namespace.hubs
    _check_names([*(queue.name for queue in queues), *(each.name for each in topics)])
    _check_names([hub.name for hub in hubs])
    service_bus = NamespaceConfig(name=SERVICE_BUS, queues=tuple(queues), topics=tuple(topics), links=links)
    event_hubs = NamespaceConfig(name=EVENT_HUBS, hubs=tuple(hubs), links=links)
    if not queues and not topics:
        service_bus = replace(service_bus, on_demand=OnDemand.QUEUES)
    if not hubs:
        event_hubs = replace(event_hubs, on_demand=OnDemand.HUBS)
    return [service_bus, event_hubs]


def _items(value: Any) -> Iterable[Any]:  # noqa: ANN401 - what a test gives to a mark
    if isinstance(value, str):
        raise pytest.UsageError(f"busway: got the text {value!r}, expected a list or a dictionary of names")
    return value.items() if isinstance(value, Mapping) else value


def _check_names(names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if not is_entity_name(name):
            raise pytest.UsageError(f"busway: {name!r} is no name for an entity, expected {EXPECTED_NAME}")
        if name.lower() in seen:
            raise pytest.UsageError(
                f"busway: two entities named {name!r}, expected names that differ by more than case"
            )
        seen.add(name.lower())


def _queue(item: object) -> QueueConfig:
    match item:
        case QueueConfig():
            return item
        case str():
            return QueueConfig(name=item)
    raise pytest.UsageError(f"busway: {item!r} is no queue, expected a name or a QueueConfig")


def _topic(item: str | TopicConfig | tuple[str, Iterable[str | SubscriptionConfig]]) -> TopicConfig:
    match item:
        case TopicConfig():
            return item
        case str():
            return TopicConfig(name=item)
        case (name, subscriptions):
            return topic(name, subscriptions)
    raise pytest.UsageError(f"busway: {item!r} is no topic, expected a name, a TopicConfig or names by topic")


def topic(name: str, subscriptions: Iterable[str | SubscriptionConfig]) -> TopicConfig:
    """Return a topic with subscriptions by name or with their settings; a UsageError for anything else."""
    if isinstance(subscriptions, str) or not isinstance(subscriptions, Iterable):
        raise pytest.UsageError(f"busway: topic {name}: got {subscriptions!r}, expected a list of subscriptions")
    return TopicConfig(
        name=name,
        subscriptions=tuple(
            SubscriptionConfig(name=subscription) if isinstance(subscription, str) else subscription
            for subscription in subscriptions
        ),
    )


def _hub(item: str | HubConfig | tuple[str, int]) -> HubConfig:
    match item:
        case HubConfig():
            return item
        case str():
            return HubConfig(name=item)
        case (name, int() as count) if 1 <= count <= MAX_PARTITIONS:
            return HubConfig(name=name, partition_count=count)
    raise pytest.UsageError(
        f"busway: {item!r} is no hub, expected a name, a HubConfig or the number of partitions by name"
    )
