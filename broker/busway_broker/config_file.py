"""
The Config.json of the official emulators, for Service Bus and for Event Hubs.

Any number of namespaces in any number of files. Keys beyond those of the emulators:

- namespace: `Port`, `MaxMessageSizeInKilobytes`, `ReleasedMessagesGoLast` (put a message that its receiver
  releases behind all others), `LockGroupSize` (the messages of a partition that share a lock), `CountsLag` (how
  old the counts of the administration may be), `AcceptsEntraTokens` and `SharedAccessKeys`, a list of `Name`, `Key`
  and `Rights` (Listen, Send, Manage; all by default); without keys, every client is accepted
- queue, topic, subscription, hub: what the administration has, such as `Status`, `MaxSizeInMegabytes` and
  `EnablePartitioning`
- namespace of hubs: `GeoReplication`, for the offsets that hubs have with it
- hub: `MessageRetention` and `RetentionSizeInKilobytes` (per partition)

The settings of queues, topics and subscriptions and their limits are those of the administration (`entity_fields.py`).
Comments, trailing commas, keys for people and for editors (`//`, `$schema`) and the `Properties` of a namespace are
passed over, as by the emulators. Any other unknown key is an error, as is one that an object has twice.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from busway_broker import emulator_limits
from busway_broker.commented_json import read_json
from busway_broker.config import (
    DEFAULT_COUNTS_LAG,
    DEFAULT_RULE,
    MAX_PARTITIONS,
    HubConfig,
    LinkLimits,
    NamespaceConfig,
    Pairing,
    QueueConfig,
    Right,
    SharedAccessKey,
    SubscriptionConfig,
    TopicConfig,
)
from busway_broker.config_reader import Reader
from busway_broker.config_rules import read_rule
from busway_broker.entity_fields import QUEUE_FIELDS, STATUS, SUBSCRIPTION_FIELDS, TOPIC_FIELDS, Field
from shared.errors import ConfigError, Problem

_EXPECTED = "expected the Config.json of Microsoft's emulators, with UserConfig"


def load_config(
    paths: Iterable[str | Path], *, is_strict: bool = False, creates_targets: bool = False
) -> list[NamespaceConfig]:
    """
    Return the namespaces of Config.json files in order; ConfigError lists all problems of all files.

    What the administration refuses is a problem, such as an entity that forwards to none, unless *creates_targets* says
    that clients create those. With *is_strict*, so is what the emulators refuse, and the namespaces get their limits.
    """
    problems: list[Problem] = []
    namespaces: list[NamespaceConfig] = []
    for path in map(Path, paths):
        try:
            document = _parsed(path, problems)
        except OSError as error:
            problems.append(Problem(str(path), f"cannot be read: {error.strerror}"))
        except ValueError as error:
            problems.append(Problem(str(path), f"is not JSON: {error}"))
        except RecursionError:
            problems.append(Problem(str(path), "is nested too deeply", _EXPECTED))
        else:
            found = _read_document(Reader(document, str(path), problems))
            problems += _wrong_pairings(found, path)
            if not creates_targets:
                problems += _missing_targets(found, path)
            if is_strict:
                problems += emulator_limits.problems_of(found, str(path))
                found = [emulator_limits.limited(config) for config in found]
            namespaces += found
    if problems:
        raise ConfigError(problems)
    return namespaces


def _wrong_pairings(namespaces: Sequence[NamespaceConfig], path: Path) -> Iterator[Problem]:
    names = [namespace.name for namespace in namespaces]
    for index, namespace in enumerate(namespaces):
        pairing = namespace.pairing
        if pairing is None:
            continue
        if not pairing.alias or pairing.alias in names:
            text = f"Pairing.Alias is {pairing.alias!r}, which is no name of its own"
            yield Problem(f"{path}({namespace.name})", text, "the alias needs a name that no namespace has")
        if names.count(namespace.name) > 1 or names[index + 1 :].count(pairing.secondary) != 1:
            text = f"Pairing.Secondary is {pairing.secondary!r}, expected one namespace of this file, behind this one"
            yield Problem(f"{path}({namespace.name})", text)


def _missing_targets(namespaces: Iterable[NamespaceConfig], path: Path) -> Iterator[Problem]:
    for namespace in namespaces:
        for entity, target in namespace.missing_targets():
            text = f"forwards to {target}, which the namespace does not have"
            yield Problem(f"{path}({namespace.name}).{entity}", text, "declare it as a queue or topic")


def _parsed(path: Path, problems: list[Problem]) -> object:
    """Return the content of a file, in UTF-8 or UTF-16 as Windows writes it; keys that occur twice are problems."""
    content = path.read_bytes()
    if not content.strip():
        raise ValueError(f"the file is empty, {_EXPECTED}")

    def checked(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = sorted(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            problems.append(
                Problem(str(path), f"an object has {', '.join(twice)} twice", "only the last one would count")
            )
        return found

    document = read_json(content, checked)
    json.dumps(document, ensure_ascii=False).encode()  # a ValueError for one half of a character
    return document


def _read_document(document: Reader) -> list[NamespaceConfig]:
    user = document.child("UserConfig")
    namespaces = [*user.each("Namespaces", _read_namespace), *user.each("NamespaceConfig", _read_hub_namespace)]
    for logging in ("Logging", "LoggingConfig"):
        if user.has(logging):
            user.child(logging).text("Type", "File")
    if not namespaces:
        user.problem("has no namespace", "expected Namespaces (Service Bus) or NamespaceConfig (Event Hubs)")
    user.finish()
    document.finish()
    return namespaces


def _read_namespace(reader: Reader) -> NamespaceConfig:
    config = NamespaceConfig(
        name=reader.name(),
        queues=reader.each("Queues", _read_queue),
        topics=reader.each("Topics", _read_topic),
        max_message_size=1024 * reader.number("MaxMessageSizeInKilobytes", 256, 1, 102_400),
        released_go_last=reader.flag("ReleasedMessagesGoLast"),
        lock_group_size=reader.number("LockGroupSize", 1, 1, 10_000),
        counts_lag=reader.optional_duration("CountsLag", DEFAULT_COUNTS_LAG) or timedelta(),
        expires_lazily=reader.flag("ExpiresLazily"),
        deferred_expire=reader.flag("DeferredExpire"),
        copy_delay=reader.optional_duration("CopyDelay", timedelta()) or timedelta(),
        **_read_access(reader),
    )
    reader.unique([*(queue.name for queue in config.queues), *(topic.name for topic in config.topics)])
    reader.ignore("Properties")  # of Microsoft's own service, such as MaxAllowedConnections
    return config


def _read_access(reader: Reader) -> dict[str, Any]:
    """Return the settings of both kinds of namespaces: who may connect, where, and for how long."""
    return {
        "port": reader.optional_number("Port", 1, 65535),
        "shared_access_keys": _read_keys(reader),
        "accepts_entra_tokens": reader.flag("AcceptsEntraTokens"),
        "disable_local_auth": reader.flag("DisableLocalAuth"),
        "public_network_access": reader.flag("PublicNetworkAccess", default=True),
        "links": _read_links(reader),
        "pairing": _read_pairing(reader),
    }


def _read_links(reader: Reader) -> LinkLimits:
    default = LinkLimits()
    return LinkLimits(
        link_idle=reader.optional_duration("LinkIdle", default.link_idle),
        publisher_idle=reader.optional_duration("PublisherIdle", default.publisher_idle),
        connection_idle=reader.optional_duration("ConnectionIdle", default.connection_idle),
        session_handover=reader.optional_duration("SessionHandover", default.session_handover) or timedelta(),
        updates_detach=reader.flag("UpdatesDetach", default=default.updates_detach),
        max_unsettled=reader.number("MaxUnsettled", 5_000, 1, 1_000_000),
        max_tokens=reader.number("MaxTokens", 1_000, 1, 1_000_000),
        peek_idle=reader.optional_duration("PeekIdle", default.peek_idle),
        max_peeked=reader.number("MaxPeeked", default.max_peeked, 1, 10_000),
        max_peeked_of_partitions=reader.number("MaxPeekedOfPartitions", default.max_peeked_of_partitions, 1, 10_000),
    )


def _read_keys(reader: Reader) -> tuple[SharedAccessKey, ...]:
    keys = reader.each("SharedAccessKeys", _read_key)
    reader.unique([key.name for key in keys], "keys")
    return keys


def _read_key(reader: Reader) -> SharedAccessKey:
    name = reader.name()
    key = reader.optional_text("Key")
    if key is None:
        reader.problem("is missing", "expected the key that clients sign with", "Key")
    names = reader.texts("Rights")
    for each in names:
        if each not in Right:
            reader.problem(f"names {each!r}", f"expected {', '.join(Right)}", "Rights")
    rights = frozenset(Right(name) for name in names if name in Right)
    return SharedAccessKey(name=name, key=key or "?", rights=rights or frozenset(Right))


def _read_queue(reader: Reader) -> QueueConfig:
    return QueueConfig(name=reader.entity_name(), **_read_properties(reader, QUEUE_FIELDS))


def _read_topic(reader: Reader) -> TopicConfig:
    name = reader.entity_name()
    subscriptions = reader.each("Subscriptions", _read_subscription)
    config = TopicConfig(name=name, subscriptions=subscriptions, **_read_properties(reader, TOPIC_FIELDS))
    reader.unique([subscription.name for subscription in subscriptions], "subscriptions")
    return config


def _read_subscription(reader: Reader) -> SubscriptionConfig:
    name = reader.child_name("subscription")
    # Without rules, a subscription has the default rule, which selects every message.
    rules = reader.each("Rules", read_rule) or (DEFAULT_RULE,)
    config = SubscriptionConfig(name=name, rules=rules, **_read_properties(reader, SUBSCRIPTION_FIELDS))
    reader.unique([rule.name for rule in rules], "rules")
    return config


def _read_properties(reader: Reader, known: Iterable[Field]) -> dict[str, Any]:
    properties = reader.child("Properties")
    found = properties.settings(known)
    properties.finish()
    return found


def _read_pairing(reader: Reader) -> Pairing | None:
    """Return the alias of a primary namespace, None without one."""
    if not reader.has("Pairing"):
        return None
    child = reader.child("Pairing")
    pairing = Pairing(child.text("Alias", ""), child.text("Secondary", ""), child.optional_number("Port", 1, 65535))
    child.finish()
    return pairing


def _read_hub_namespace(reader: Reader) -> NamespaceConfig:
    kind = reader.text("Type", "EventHub")
    if kind.lower() != "eventhub":
        reader.problem(f"Type is {kind}", "expected EventHub")
    config = NamespaceConfig(
        name=reader.name(),
        hubs=reader.each("Entities", _read_hub),
        geo_replicated=reader.flag("GeoReplication"),
        **_read_access(reader),
    )
    reader.unique([hub.name for hub in config.hubs])
    return config


def _read_hub(reader: Reader) -> HubConfig:
    kilobytes = reader.optional_number("RetentionSizeInKilobytes", 1, 1024 * 1024)
    return HubConfig(
        name=reader.entity_name(),
        partition_count=reader.number("PartitionCount", 1, 1, MAX_PARTITIONS),
        consumer_groups=reader.each("ConsumerGroups", Reader.name),
        message_retention=reader.duration("MessageRetention", "P1D"),
        retention_size=None if kilobytes is None else 1024 * kilobytes,
        **reader.settings((STATUS,)),
    )
