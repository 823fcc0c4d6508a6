"""
Stored entities, and how they are reconciled with the configuration files that the broker starts with.

1. A key is the path of an entity in lower case. A record holds its configuration, times and rules, and a digest of its
   configuration in the files.
2. A change or deletion made while the broker ran stays in force while the files describe the entity as before.
3. An entity whose description in the files has changed is as the files describe it, and keeps its messages.
4. An entity that the files no longer name is kept, as it may hold messages; a warning names it.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.entities import Queue, Subscription, Topic
from busway_broker.core.hub import Hub
from busway_broker.core.namespace import Namespace
from busway_broker.core.rule_book import RuleDefinition
from busway_broker.core.usage import Times
from busway_broker.storage.database import StorageError
from busway_broker.storage.plain import plain, read

LOG = logging.getLogger(__name__)

type Record = dict[str, Any]
type Kept = Queue | Topic | Subscription | Hub
type Config = QueueConfig | TopicConfig | SubscriptionConfig | HubConfig

_KINDS: Mapping[str, type[Config]] = {
    "queue": QueueConfig,
    "topic": TopicConfig,
    "subscription": SubscriptionConfig,
    "hub": HubConfig,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_SUBSCRIPTIONS = "/subscriptions/"
_FIXED = ("requires_session", "partition_count", "enable_partitioning")


def settle(config: NamespaceConfig, records: Mapping[str, Record]) -> tuple[NamespaceConfig, dict[str, str]]:
    """
    Return the configuration that results from the *config* in the files and the entities in *records*.

    And the digest of each entity's configuration in the files, by key.
    """
    declared = dict(_declared(config))
    digests = {key: _digest(config) for key, config in declared.items()}
    kept: dict[str, Config] = {}
    for key, each in declared.items():
        record = records.get(key)
        if record is None or record["declared"] != digests[key]:
            if record is not None and record["kind"] is not None:
                _check_fixed(config.name, _config(record), each)
            kept[key] = each
        elif record["kind"] is not None:
            kept[key] = _config(record)
    for key, record in records.items():
        if key not in declared and record["kind"] is not None:
            kept[key] = _config(record)
            if record["declared"] is not None:
                LOG.warning("%s: %s is no longer in the configuration; it is kept", config.name, record["path"])
    return _with_entities(config, kept), digests


def _check_fixed(namespace: str, kept: Config, declared: Config) -> None:
    """Raise a StorageError if the files change a setting that the stored messages depend on."""
    if type(kept) is not type(declared):
        raise StorageError(
            f"{namespace}: {declared.name}: is a {_NAMES[type(declared)]}, expected a {_NAMES[type(kept)]} as in the "
            "stored data; rename the entity, or choose another folder"
        )
    for name in _FIXED:
        before, now = getattr(kept, name, None), getattr(declared, name, None)
        if before != now:
            raise StorageError(
                f"{namespace}: {declared.name}: {name} is {now}, expected {before} as in the stored data; "
                "restore the setting, rename the entity, or choose another folder"
            )


def _declared(config: NamespaceConfig) -> Iterator[tuple[str, Config]]:
    for queue in config.queues:
        yield queue.name.lower(), queue
    for topic in config.topics:
        yield topic.name.lower(), replace(topic, subscriptions=())
        for subscription in topic.subscriptions:
            yield f"{topic.name}{_SUBSCRIPTIONS}{subscription.name}".lower(), subscription
    for hub in config.hubs:
        yield f"{hub.name.lower()} (hub)", hub  # the key of the hub, once there is one


def _with_entities(config: NamespaceConfig, entities: Mapping[str, Config]) -> NamespaceConfig:
    subscriptions: dict[str, list[SubscriptionConfig]] = {}
    for key, entity in entities.items():
        if isinstance(entity, SubscriptionConfig):
            subscriptions.setdefault(key.partition(_SUBSCRIPTIONS)[0], []).append(entity)
    return replace(
        config,
        queues=tuple(entity for entity in entities.values() if isinstance(entity, QueueConfig)),
        topics=tuple(
            replace(entity, subscriptions=tuple(subscriptions.get(key, ())))
            for key, entity in entities.items()
            if isinstance(entity, TopicConfig)
        ),
        hubs=tuple(entity for entity in entities.values() if isinstance(entity, HubConfig)),
    )


def restore(namespace: Namespace, records: Mapping[str, Record], declared: Mapping[str, str]) -> None:
    """Restore the times of the entities of *namespace*, and their rules unless the files have changed them."""
    for key, entity in entities_of(namespace):
        record = records.get(key)
        if record is None or record["kind"] is None:
            continue
        if isinstance(entity, Hub):
            entity.created_at = record["created_at"]
            continue
        entity.times = read(Times, record["times"])
        if isinstance(entity, Subscription) and declared.get(key, record["declared"]) == record["declared"]:
            entity.rule_book.restore(read(RuleDefinition, each) for each in record["rules"])


def entities_of(namespace: Namespace) -> Iterator[tuple[str, Kept]]:
    """Yield all entities with their keys."""
    yield from namespace.queues.items()
    for name, topic in namespace.topics.items():
        yield name, topic
        for subscription_name, subscription in topic.subscriptions.items():
            yield f"{name}{_SUBSCRIPTIONS}{subscription_name}", subscription
    for hub in namespace.hubs.values():
        yield hub.key, hub


def record_of(entity: Kept, declared: str | None) -> Record:
    """Return the record of an entity; *declared* is its digest from `settle`, None if the files do not name it."""
    config = entity.config
    record: Record = {"declared": declared, "path": entity.path, "kind": _NAMES[type(config)]}
    match entity:
        case Hub():
            record["created_at"] = entity.created_at
        case Subscription():
            config = replace(entity.config, rules=())
            record["rules"] = plain(entity.rule_book.definitions)
            record["times"] = plain(entity.times)
        case Topic():
            config = replace(entity.config, subscriptions=())
            record["times"] = plain(entity.times)
        case Queue():
            record["times"] = plain(entity.times)
    record["config"] = plain(config)
    return record


def record_of_deleted(path: str, declared: str | None) -> Record:
    """Return the record of an entity that was deleted."""
    return {"declared": declared, "path": path, "kind": None}


def _config(record: Record) -> Config:
    config = read(_KINDS[record["kind"]], record["config"])
    if isinstance(config, SubscriptionConfig):
        return replace(config, rules=tuple(read(RuleDefinition, each).rule for each in record["rules"]))
    return config


def _digest(config: Config) -> str:
    return hashlib.sha256(json.dumps(plain(config), sort_keys=True).encode()).hexdigest()[:16]
