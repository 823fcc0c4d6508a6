"""
Creating, changing and deleting entities while the broker runs.

1. A new entity has a name that neither a queue nor a topic has; case does not count.
2. What an entity requires of its messages (sessions, duplicate detection) and its partitioning never change.
3. When an entity is deleted or disabled, the links that it no longer allows are ended with the reason; any update ends
   the others too (Azure/azure-service-bus 365).

Source: Microsoft Learn, "Service Bus REST API" (create, update and delete queue, topic, subscription); "Suspend and
reactivate messaging entities".
"""

from dataclasses import replace

from busway_broker import errors
from busway_broker.config import (
    EXPECTED_CHILD_NAME,
    EXPECTED_NAME,
    HubConfig,
    QueueConfig,
    SubscriptionConfig,
    TopicConfig,
    is_child_name,
    is_entity_name,
)
from busway_broker.core.entities import Queue, Subscription, Topic
from busway_broker.core.hub import Hub
from busway_broker.core.namespace import Namespace, deleted
from busway_broker.core.rule_book import RuleDefinition
from busway_broker.core.times import milliseconds
from busway_broker.core.usage import FORBIDDEN, disabled
from busway_broker.errors import Refusal

_FIXED = ("requires_session", "requires_duplicate_detection", "enable_partitioning")
type _Config = QueueConfig | TopicConfig | SubscriptionConfig


class Administration:
    """The operations of an administrator on a namespace; an impossible one raises a Refusal."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    # Queues and topics

    def create_queue(self, config: QueueConfig) -> Queue:
        """Create a queue."""
        _check_name(self._namespace, config.name)
        self._check_targets(config)
        queue = self._namespace.queues[config.name.lower()] = Queue(config, self._namespace)
        self._namespace.watch_idle()
        return queue

    def create_topic(self, config: TopicConfig) -> Topic:
        """Create a topic."""
        _check_name(self._namespace, config.name)
        topic = self._namespace.topics[config.name.lower()] = Topic(config, self._namespace)
        self._namespace.watch_idle()
        return topic

    def update(self, entity: Queue | Topic | Subscription, config: _Config) -> None:
        """Change the configuration of an entity, not of a topic's subscriptions and not the rules of a subscription."""
        _check_update(entity.config, config)
        if not isinstance(config, TopicConfig):
            self._check_targets(config)
        before = entity.config
        entity.reconfigure(config)  # type: ignore[arg-type] # one of its kind
        entity.times.updated_at = milliseconds(self._namespace.clock)
        path, links = entity.path, self._namespace.links
        links.detach(path.lower(), FORBIDDEN[config.status], disabled(path, config.status))
        if self._namespace.config.links.updates_detach and not _is_only_larger(before, config):
            links.end_forced(path.lower())
        self._namespace.watch_idle()

    def delete(self, name: str) -> None:
        """Delete a queue or topic with its contents."""
        self._namespace.remove(self._namespace.entity(name))

    # Subscriptions

    def create_subscription(self, topic_name: str, config: SubscriptionConfig) -> Subscription:
        """Create a subscription of a topic."""
        topic = self._namespace.topic(topic_name)
        if not is_child_name(config.name):
            raise _bad(f"'{config.name}' is no name for a subscription, expected {EXPECTED_CHILD_NAME}")
        if config.name.lower() in topic.subscriptions:
            raise Refusal(errors.ENTITY_ALREADY_EXISTS, f"{topic.path}: subscription {config.name} already exists")
        self._check_targets(config)
        subscription = topic.subscribe(config)
        self._namespace.watch_idle()
        return subscription

    def delete_subscription(self, topic_name: str, name: str) -> None:
        """Delete a subscription with its contents."""
        self._namespace.remove(self._namespace.subscription(topic_name, name))

    def create_rule(self, subscription: Subscription, definition: RuleDefinition) -> RuleDefinition:
        """Add a rule to a subscription and return it with its creation time."""
        name = definition.rule.name
        if not is_child_name(name):
            raise _bad(f"'{name}' is no name for a rule, expected {EXPECTED_CHILD_NAME}")
        return subscription.rule_book.add(definition)

    # Event hubs, which in Azure only the Resource Manager creates and deletes

    def create_hub(self, config: HubConfig) -> Hub:
        """Create a hub."""
        _check_name(self._namespace, config.name)
        hub = self._namespace.hubs[config.name.lower()] = Hub(config, self._namespace.clock, self._namespace.recorder)
        return hub

    def delete_hub(self, name: str) -> None:
        """Delete a hub with its events; a new one of its name starts with the first sequence number and offset."""
        hub = self._namespace.hub(name)
        del self._namespace.hubs[name.lower()]
        self._namespace.links.detach_deleted(hub.key, deleted(hub.path))

    # Checks

    def _check_targets(self, config: QueueConfig | SubscriptionConfig) -> None:
        if config.requires_session and config.forward_to is not None:
            raise _bad("Bad Request.")  # Azure/azure-service-bus issue 317
        for target in (config.forward_to, config.forward_dead_lettered_messages_to):
            if target is None:
                continue
            if target.lower() == config.name.lower() and isinstance(config, QueueConfig):
                # Accepted, as in Azure: its messages end in the dead-letter queue after the hops that are allowed.
                continue
            try:
                self._namespace.target(target)
            except Refusal as refusal:
                raise _bad(f"{config.name}: it cannot forward to '{target}', expected a queue or topic") from refusal


def _check_update(before: _Config, after: _Config) -> None:
    for name in _FIXED:
        if getattr(after, name, None) != getattr(before, name, None):
            setting = "".join(map(str.capitalize, name.split("_")))
            kind = type(after).__name__.removesuffix("Config")
            raise _bad(f"The value for the {setting} property of an existing {kind} cannot be changed.")


def _is_only_larger(before: _Config, after: _Config) -> bool:
    """Return whether an update has changed the maximum message size alone, which is reported to end no links."""
    if isinstance(before, SubscriptionConfig) or isinstance(after, SubscriptionConfig):
        return False
    return before != after and replace(before, max_message_size=after.max_message_size) == after


def _check_name(namespace: Namespace, name: str) -> None:
    """Raise a Refusal unless *name* is a valid name that no entity of the namespace has."""
    if not is_entity_name(name):
        raise _bad(f"'{name}' is no name for an entity, expected {EXPECTED_NAME}")
    if any(name.lower() in names for names in (namespace.queues, namespace.topics, namespace.hubs)):
        raise Refusal(errors.ENTITY_ALREADY_EXISTS, f"an entity named '{name}' already exists")


def _bad(description: str) -> Refusal:
    return Refusal(errors.ARGUMENT_ERROR, description)
