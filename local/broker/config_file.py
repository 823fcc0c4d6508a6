"""
The Config.json of the official emulators, for Service Bus and for Event Hubs.

Any number of namespaces in any number of files. Keys beyond those of the emulators:

- namespace: `Port`, `MaxMessageSizeInKilobytes`, `ReleasedMessagesGoLast` (put a message that its receiver
  releases behind all others), `LockGroupSize` (the messages of a partition that share a lock), `AcceptsEntraTokens` and
  `SharedAccessKeys`, a list of `Name`, `Key` and `Rights` (Listen, Send, Manage; all by default); without keys, every
  client is accepted
- queue, topic, subscription, hub: `Status`; queue, topic: `MaxMessageSizeInKilobytes`, `MaxSizeInMegabytes` and
  `EnablePartitioning`; subscription: `DeadLetteringOnFilterEvaluationExceptions`
- namespace of hubs: `GeoReplication`, for the offsets that hubs have with it
- hub: `MessageRetention` and `RetentionSizeInKilobytes` (per partition)

An unknown key is an error, as is one that an object has twice.
"""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from local.broker import emulator_limits
from local.broker.config import (
    DEFAULT_MAX_SIZE,
    DEFAULT_RULE,
    MAX_MAX_SIZE,
    MAX_PARTITIONS,
    EntityStatus,
    HubConfig,
    LinkLimits,
    NamespaceConfig,
    QueueConfig,
    Right,
    SharedAccessKey,
    SubscriptionConfig,
    TopicConfig,
)
from local.broker.config_reader import Reader
from local.broker.config_rules import read_rule
from shared.errors import ConfigError, Problem

_EXPECTED = "expected the Config.json of Microsoft's emulators, with UserConfig"


def load_config(paths: Iterable[str | Path], *, is_strict: bool = False) -> list[NamespaceConfig]:
    """
    Return the namespaces of Config.json files in order; ConfigError lists all problems of all files.

    With *is_strict*, what the emulators refuse is a problem too, and the namespaces get the emulators' limits.
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
            if is_strict:
                problems += emulator_limits.problems_of(found, str(path))
                found = [emulator_limits.limited(each) for each in found]
            namespaces += found
    if problems:
        raise ConfigError(problems)
    return namespaces


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

    return json.loads(content, object_pairs_hook=checked)


def _read_document(document: Reader) -> list[NamespaceConfig]:
    user = document.child("UserConfig")
    namespaces = [_read_namespace(each) for each in user.children("Namespaces")]
    namespaces += [_read_hub_namespace(each) for each in user.children("NamespaceConfig")]
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
        queues=tuple(_read_queue(each) for each in reader.children("Queues")),
        topics=tuple(_read_topic(each) for each in reader.children("Topics")),
        port=reader.optional_number("Port", 1, 65535),
        shared_access_keys=_read_keys(reader),
        accepts_entra_tokens=reader.flag("AcceptsEntraTokens"),
        disable_local_auth=reader.flag("DisableLocalAuth"),
        public_network_access=reader.flag("PublicNetworkAccess", default=True),
        max_message_size=1024 * reader.number("MaxMessageSizeInKilobytes", 256, 1, 102_400),
        released_go_last=reader.flag("ReleasedMessagesGoLast"),
        lock_group_size=reader.number("LockGroupSize", 1, 1, 10_000),
        links=_read_links(reader),
    )
    reader.unique([*(each.name for each in config.queues), *(each.name for each in config.topics)])
    reader.finish()
    return config


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
    keys = tuple(_read_key(each) for each in reader.children("SharedAccessKeys"))
    reader.unique([each.name for each in keys], "keys")
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
    rights = frozenset(Right(each) for each in names if each in Right)
    reader.finish()
    return SharedAccessKey(name=name, key=key or "?", rights=rights or frozenset(Right))


def _status(reader: Reader) -> EntityStatus:
    text = reader.text("Status", EntityStatus.ACTIVE)
    if text not in EntityStatus:
        reader.problem(f"is {text!r}", f"expected {', '.join(EntityStatus)}", "Status")
        return EntityStatus.ACTIVE
    return EntityStatus(text)


def _read_queue(reader: Reader) -> QueueConfig:
    name = reader.entity_name()
    properties = reader.child("Properties")
    config = QueueConfig(
        name=name,
        requires_session=properties.flag("RequiresSession"),
        lock_duration=properties.duration("LockDuration", "PT1M"),
        max_delivery_count=properties.number("MaxDeliveryCount", 10, 1, 2**31 - 1),
        default_message_time_to_live=properties.optional_duration("DefaultMessageTimeToLive"),
        dead_lettering_on_message_expiration=properties.flag("DeadLetteringOnMessageExpiration"),
        requires_duplicate_detection=properties.flag("RequiresDuplicateDetection"),
        duplicate_detection_history_time_window=properties.duration("DuplicateDetectionHistoryTimeWindow", "PT10M"),
        forward_to=properties.optional_text("ForwardTo"),
        forward_dead_lettered_messages_to=properties.optional_text("ForwardDeadLetteredMessagesTo"),
        status=_status(properties),
        max_message_size=_kilobytes(properties),
        max_size=properties.number("MaxSizeInMegabytes", DEFAULT_MAX_SIZE, 1, MAX_MAX_SIZE),
        enable_partitioning=properties.flag("EnablePartitioning"),
    )
    properties.finish()
    reader.finish()
    return config


def _read_topic(reader: Reader) -> TopicConfig:
    name = reader.entity_name()
    properties = reader.child("Properties")
    config = TopicConfig(
        name=name,
        subscriptions=tuple(_read_subscription(each) for each in reader.children("Subscriptions")),
        default_message_time_to_live=properties.optional_duration("DefaultMessageTimeToLive"),
        requires_duplicate_detection=properties.flag("RequiresDuplicateDetection"),
        duplicate_detection_history_time_window=properties.duration("DuplicateDetectionHistoryTimeWindow", "PT10M"),
        max_message_size=_kilobytes(properties),
        status=_status(properties),
        max_size=properties.number("MaxSizeInMegabytes", DEFAULT_MAX_SIZE, 1, MAX_MAX_SIZE),
        enable_partitioning=properties.flag("EnablePartitioning"),
        support_ordering=properties.flag("SupportOrdering", default=True),
    )
    reader.unique([each.name for each in config.subscriptions], "subscriptions")
    properties.finish()
    reader.finish()
    return config


def _read_subscription(reader: Reader) -> SubscriptionConfig:
    name = reader.name()
    properties = reader.child("Properties")
    config = SubscriptionConfig(
        name=name,
        # Without rules, a subscription has the default rule, which selects every message.
        rules=tuple(read_rule(each) for each in reader.children("Rules")) or (DEFAULT_RULE,),
        requires_session=properties.flag("RequiresSession"),
        lock_duration=properties.duration("LockDuration", "PT1M"),
        max_delivery_count=properties.number("MaxDeliveryCount", 10, 1, 2**31 - 1),
        default_message_time_to_live=properties.optional_duration("DefaultMessageTimeToLive"),
        dead_lettering_on_message_expiration=properties.flag("DeadLetteringOnMessageExpiration"),
        dead_lettering_on_filter_evaluation_exceptions=properties.flag(
            "DeadLetteringOnFilterEvaluationExceptions", default=True
        ),
        forward_to=properties.optional_text("ForwardTo"),
        forward_dead_lettered_messages_to=properties.optional_text("ForwardDeadLetteredMessagesTo"),
        status=_status(properties),
    )
    reader.unique([each.name for each in config.rules], "rules")
    properties.finish()
    reader.finish()
    return config


def _read_hub_namespace(reader: Reader) -> NamespaceConfig:
    kind = reader.text("Type", "EventHub")
    if kind.lower() != "eventhub":
        reader.problem(f"Type is {kind}", "expected EventHub")
    config = NamespaceConfig(
        name=reader.name(),
        hubs=tuple(_read_hub(each) for each in reader.children("Entities")),
        port=reader.optional_number("Port", 1, 65535),
        shared_access_keys=_read_keys(reader),
        accepts_entra_tokens=reader.flag("AcceptsEntraTokens"),
        disable_local_auth=reader.flag("DisableLocalAuth"),
        public_network_access=reader.flag("PublicNetworkAccess", default=True),
        geo_replicated=reader.flag("GeoReplication"),
        links=_read_links(reader),
    )
    reader.unique([each.name for each in config.hubs])
    reader.finish()
    return config


def _read_hub(reader: Reader) -> HubConfig:
    groups = []
    name = reader.entity_name()
    for group in reader.children("ConsumerGroups"):
        groups.append(group.name())
        group.finish()
    config = HubConfig(
        name=name,
        partition_count=reader.number("PartitionCount", 1, 1, MAX_PARTITIONS),
        consumer_groups=tuple(groups),
        message_retention=reader.duration("MessageRetention", "P1D"),
        retention_size=_kilobytes(reader, "RetentionSizeInKilobytes", 1024 * 1024),
        status=_status(reader),
    )
    reader.finish()
    return config


def _kilobytes(reader: Reader, key: str = "MaxMessageSizeInKilobytes", maximum: int = 102_400) -> int | None:
    kilobytes = reader.optional_number(key, 1, maximum)
    return None if kilobytes is None else 1024 * kilobytes
