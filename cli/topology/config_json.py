"""
Config.json, the format of Microsoft's emulators: what a namespace has, and what tasks need.

`busway export` writes what exists, also in the keys that only the local broker has. `busway plan --config-json` writes
what tasks need, within the limits of the emulators.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from cli.topology.difference import creation
from cli.topology.model import (
    CORRELATION,
    DEFAULT_RULE,
    EVERYTHING,
    NEW_RULE,
    SETTINGS,
    Entity,
    Kind,
    Name,
    Namespace,
    Setting,
    SubscriptionRule,
    pascal,
    text_of,
    written,
)
from cli.topology.needs import Needed
from shared.amqp.values import Value
from shared.printable import json_lines
from shared.rules import CorrelationFilter, FalseFilter, Rule, TrueFilter
from shared.rules.value_text import value_text
from shared.rules.value_types import type_of

SERVICE_BUS_NAME, EVENT_HUBS_NAME = "sbemulatorns", "emulatorNs1"
"""The only names that the emulators accept; a file's own name says which connection it is for."""

_HOUR = timedelta(hours=1)
_NOTHING = SubscriptionRule(DEFAULT_RULE, "1=0")
_HELD = frozenset(("boolean", "long", "double", "string"))
"""The types of values in a correlation filter that are read again as they were."""
# The highest values that Microsoft's emulators accept: broker/busway_broker/emulator_limits.py names their source.
_LIMITS: dict[str, Any] = {
    "max_delivery_count": 10,
    "default_message_time_to_live": _HOUR,
    "duplicate_detection_history_time_window": timedelta(minutes=5),
}


def document_of(namespace: Namespace, *, for_emulator: bool = False) -> str:
    """Return the Config.json of a namespace's entities."""
    hubs = [entity for entity in namespace.sorted() if entity.name.kind is Kind.HUB]
    content: dict[str, Any]
    if hubs:
        entities = [_hub(hub, namespace, for_emulator=for_emulator) for hub in hubs]
        content = {
            "NamespaceConfig": [{"Type": "EventHub", "Name": EVENT_HUBS_NAME, "Entities": entities}],
            "LoggingConfig": {"Type": "Console"},
        }
    else:
        queues = [_described(entity, for_emulator) for entity in namespace.sorted() if entity.name.kind is Kind.QUEUE]
        topics = [
            {
                **_described(entity, for_emulator),
                "Subscriptions": [
                    {**_described(each, for_emulator), "Rules": _rules(each)}
                    for each in namespace.sorted()
                    if each.name.parent is not None and each.name.parent.key == entity.name.key
                ],
            }
            for entity in namespace.sorted()
            if entity.name.kind is Kind.TOPIC
        ]
        content = {
            "Namespaces": [{"Name": SERVICE_BUS_NAME, "Queues": queues, "Topics": topics}],
            "Logging": {"Type": "Console"},
        }
    return json_lines({"UserConfig": content}) + "\n"


def not_in_a_file(namespace: Namespace) -> list[str]:
    """Return what a Config.json of *namespace* cannot hold."""
    found = []
    for entity in namespace.sorted():
        if entity.name.kind is Kind.SUBSCRIPTION and not entity.rules:
            found.append(f"{entity.name}: has no rule (written as one that selects nothing)")
        for rule in entity.rules:
            if rule.parameters:
                found.append(f"{entity.name}: rule {rule.name} has parameters")
            values = rule.filter.properties if isinstance(rule.filter, CorrelationFilter) else {}
            found += [
                f"{entity.name}: rule {rule.name} compares {name} with a {type_of(value)}"
                for name, value in values.items()
                if type_of(value) not in _HELD
            ]
    return found


def emulated(needed: Mapping[tuple[Kind, str], Needed]) -> tuple[Namespace, list[str]]:
    """Return what is needed within the limits of the emulators, and a line for each setting that they lower."""
    lowered: list[str] = []
    entities = []
    for each in needed.values():
        step = creation(each)
        settings = dict(step.settings)
        for name, most in _LIMITS.items():
            if name in settings and (settings[name] is None or settings[name] > most):
                has = text_of(settings[name])
                settings[name] = most
                lowered.append(f"{each.name}: {name} {text_of(most)} instead of {has}")
        entities.append(Entity(each.name, settings, (step.rule or NEW_RULE,)))
    return Namespace(entities), lowered


def _described(entity: Entity, for_emulator: bool) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for setting, known in SETTINGS.items():
        value = entity.settings.get(setting)
        if setting == "default_message_time_to_live" and for_emulator and value is None:
            value = _HOUR
        is_held = known.is_emulated or (known.default is not None and not for_emulator and value != known.default)
        if is_held and value is not None:
            properties[pascal(setting)] = written(value)
    return {"Name": entity.name.parts[-1], "Properties": properties}


def _rules(subscription: Entity) -> list[dict[str, Any]]:
    """Return its rules; an empty list means the rule of a new subscription, as in the files of the emulators."""
    match subscription.rules:
        case ():
            return [_rule(_NOTHING)]
        case (rule,) if rule.name == DEFAULT_RULE and rule.selects_everything:
            return []
        case rules:
            return [_rule(rule) for rule in rules]


def _rule(rule: SubscriptionRule) -> dict[str, Any]:
    properties: dict[str, Any]
    if isinstance(rule.filter, CorrelationFilter):
        texts = {pascal(each): getattr(rule.filter, "subject" if each == "label" else each) for each in CORRELATION}
        correlation: dict[str, Any] = {key: text for key, text in texts.items() if text is not None}
        if rule.filter.properties:
            correlation["Properties"] = {
                name: value.payload if type_of(value) in _HELD else value_text(value)
                for name, value in rule.filter.properties.items()
            }
        properties = {"FilterType": "Correlation", "CorrelationFilter": correlation}
    else:
        properties = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": rule.filter}}
    if rule.action is not None:
        properties["Action"] = {"SqlExpression": rule.action}
    return {"Name": rule.name, "Properties": properties}


def _hub(hub: Entity, namespace: Namespace, *, for_emulator: bool) -> dict[str, Any]:
    groups = [
        entity.name.parts[1]
        for entity in namespace.sorted()
        if entity.name.kind is Kind.CONSUMER_GROUP and entity.name.parts[0].lower() == hub.name.parts[0].lower()
    ]
    described: dict[str, Any] = {
        "Name": hub.name.parts[0],
        "PartitionCount": str(hub.settings.get("partition_count", 1)),
        "ConsumerGroups": [{"Name": group} for group in groups],
    }
    retention = hub.settings.get("message_retention")
    if isinstance(retention, timedelta) and not for_emulator:
        described["MessageRetention"] = written(retention)
    return described


# From a Config.json


def namespace_in(config: NamespaceConfig) -> Namespace:
    """Return the entities that a Config.json describes."""
    found: list[Entity] = [Entity(Name(Kind.QUEUE, (queue.name,)), _settings(queue)) for queue in config.queues]
    for topic in config.topics:
        found.append(Entity(Name(Kind.TOPIC, (topic.name,)), _settings(topic)))
        for subscription in topic.subscriptions:
            rules = tuple(_read_rule(rule) for rule in subscription.rules)
            found.append(
                Entity(Name(Kind.SUBSCRIPTION, (topic.name, subscription.name)), _settings(subscription), rules)
            )
    for hub in config.hubs:
        settings: dict[str, Setting] = {
            "partition_count": hub.partition_count,
            "message_retention": hub.message_retention,
        }
        found.append(Entity(Name(Kind.HUB, (hub.name,)), settings))
        found += (Entity(Name(Kind.CONSUMER_GROUP, (hub.name, group))) for group in hub.consumer_groups)
    return Namespace(found)


def _settings(config: QueueConfig | TopicConfig | SubscriptionConfig) -> dict[str, Setting]:
    # The broker counts sizes in bytes, under other names.
    held = {name for name, known in SETTINGS.items() if known.is_emulated or known.default is not None} - {"status"}
    settings: dict[str, Setting] = {name: getattr(config, name) for name in held if hasattr(config, name)}
    settings["status"] = str(config.status)
    if not isinstance(config, SubscriptionConfig):
        settings["max_size_in_megabytes"] = config.max_size
        if config.max_message_size is not None:
            settings["max_message_size_in_kilobytes"] = config.max_message_size // 1024
    return settings


def _read_rule(rule: Rule) -> SubscriptionRule:
    match rule.filter:
        case CorrelationFilter() as selects:
            text: str | CorrelationFilter = selects
        case TrueFilter():
            text = EVERYTHING
        case FalseFilter():
            text = "1=0"
        case other:
            text = str(other)
    action = None if rule.action is None else str(rule.action)
    return SubscriptionRule(
        rule.name, text, action, _parameters(rule.filter_parameters) + _parameters(rule.action_parameters)
    )


def _parameters(values: Mapping[str, Value]) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(value.payload)) for name, value in values.items())
