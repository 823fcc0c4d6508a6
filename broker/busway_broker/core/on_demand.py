"""
Entities that are created when a client first uses them, for a namespace that says so.

1. In a Service Bus namespace a sender to an unknown name creates a queue. A receiver of `topic/Subscriptions/name`
   creates the topic and the subscription, a receiver with a session filter an entity that requires sessions.
2. In an Event Hubs namespace every use of an unknown hub creates it, with four partitions; so does a reader for an
   unknown consumer group.
3. An entity keeps what its first use has made it: a queue does not become a topic.
"""

import re

from busway_broker.config import HubConfig, OnDemand, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.administration import Administration
from busway_broker.core.namespace import SUB_QUEUE, Namespace, without_host

PARTITIONS = 4

_MANAGEMENT = re.compile(r"/\$management$", re.IGNORECASE)
_SUBSCRIPTION = re.compile(r"(?P<topic>.+?)/subscriptions/(?P<name>[^/]+)", re.IGNORECASE)
_HUB = re.compile(r"(?P<hub>.+?)(?:/consumergroups/(?P<group>[^/]+))?(?:/partitions/[^/]+)?", re.IGNORECASE)


def create_missing(namespace: Namespace, address: str, *, requires_session: bool) -> None:
    """Create the entity at *address* if the namespace creates entities and it has none; a Refusal for a bad name."""
    match namespace.config.on_demand:
        case OnDemand.QUEUES:
            path = SUB_QUEUE.sub("", _MANAGEMENT.sub("", without_host(address)))
            _create_entity(namespace, path, requires_session=requires_session)
        case OnDemand.HUBS:
            found = _HUB.fullmatch(without_host(address))
            if found is not None:
                create_hub(namespace, found["hub"], found["group"])
        case None:
            pass


def create_hub(namespace: Namespace, name: str, group: str | None = None) -> None:
    """Create a hub, and a consumer group of it, unless they exist or the namespace does not create hubs."""
    if namespace.config.on_demand is not OnDemand.HUBS:
        return
    hub = namespace.hubs.get(name.lower())
    if hub is None:
        hub = Administration(namespace).create_hub(HubConfig(name=name, partition_count=PARTITIONS))
    if group is not None:
        hub.add_consumer_group(group)


def _create_entity(namespace: Namespace, path: str, *, requires_session: bool) -> None:
    administration = Administration(namespace)
    found = _SUBSCRIPTION.fullmatch(path)
    if found is None:
        if path.lower() not in namespace.queues and path.lower() not in namespace.topics:
            administration.create_queue(QueueConfig(name=path, requires_session=requires_session))
        return
    topic = namespace.topics.get(found["topic"].lower())
    if topic is None:
        topic = administration.create_topic(TopicConfig(name=found["topic"]))
    if found["name"].lower() not in topic.subscriptions:
        administration.create_subscription(
            found["topic"], SubscriptionConfig(name=found["name"], requires_session=requires_session)
        )
