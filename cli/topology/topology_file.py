"""The entities that `topology.yaml` names, in the form of plans."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from cli.topology.model import RULE_NAME, Entity, Kind, Name, Setting, SubscriptionRule
from shared.editors.options import Strict
from shared.errors import Problem
from shared.tasks.files import Configuration, read_one
from shared.tasks.topology import TOPOLOGY, SiteEntities, Topology

_SETTINGS = {
    "sessions": "requires_session",
    "lock_duration": "lock_duration",
    "max_delivery_count": "max_delivery_count",
    "time_to_live": "default_message_time_to_live",
    "duplicate_detection": "requires_duplicate_detection",
    "duplicate_window": "duplicate_detection_history_time_window",
    "dead_letter_expired": "dead_lettering_on_message_expiration",
    "dead_letter_rule_errors": "dead_lettering_on_filter_evaluation_exceptions",
    "partitioned": "enable_partitioning",
    "max_size_mb": "max_size_in_megabytes",
    "forward_to": "forward_to",
    "forward_dead_letters_to": "forward_dead_lettered_messages_to",
    "partitions": "partition_count",
    "retention": "message_retention",
}


class TopologyFile(NamedTuple):
    """A `topology.yaml` that has been read."""

    place: str
    sites: Mapping[str, SiteEntities]

    def entities(self, configuration: Configuration, problems: list[Problem]) -> Iterator[tuple[str, Entity]]:
        """Yield each entity with the alias of its connection; adds what does not fit the connections to *problems*."""
        for alias, site in self.sites.items():
            connection = configuration.connections.get(alias)
            if connection is None:
                hint = f"connections.yaml has {', '.join(configuration.connections) or 'none'}"
                problems.append(Problem(f"{self.place}: {alias}", "is not a connection", hint))
                continue
            if not connection.is_namespace:
                text = f"is of kind {connection.kind}, whose entities Busway does not create"
                problems.append(Problem(f"{self.place}: {alias}", text, "remove it here"))
                continue
            is_hubs = connection.end.has_hubs
            if (site.hubs and not is_hubs) or ((site.queues or site.topics) and is_hubs):
                kind = "hubs" if is_hubs else "queues and topics"
                problems.append(Problem(f"{self.place}: {alias}", f"is of kind {connection.kind}, expected {kind}"))
                continue
            yield from ((alias, entity) for entity in _entities(site))


def read_topology(folder: Path) -> TopologyFile | None:
    """Return the `topology.yaml` of a configuration folder, None without one; raises ConfigError."""
    path = folder / TOPOLOGY
    return TopologyFile(str(path), read_one(path, Topology).root) if path.exists() else None


def _entities(site: SiteEntities) -> Iterator[Entity]:
    for name, queue in site.queues.items():
        yield Entity(Name(Kind.QUEUE, (name,)), _settings(queue))
    for name, topic in site.topics.items():
        yield Entity(Name(Kind.TOPIC, (name,)), _settings(topic))
        for each, subscription in (topic.subscriptions if topic else {}).items():
            rule = None if subscription is None else subscription.rule
            rules = () if rule is None else (SubscriptionRule(RULE_NAME, rule.filter, rule.action),)
            yield Entity(Name(Kind.SUBSCRIPTION, (name, each)), _settings(subscription), rules)
    for name, hub in site.hubs.items():
        yield Entity(Name(Kind.HUB, (name,)), _settings(hub))
        for group in hub.consumer_groups if hub else ():
            yield Entity(Name(Kind.CONSUMER_GROUP, (name, group)))


def _settings(model: Strict | None) -> dict[str, Setting]:
    given = {} if model is None else model.model_dump(exclude_none=True)
    return {_SETTINGS[name]: value for name, value in given.items() if name in _SETTINGS}
