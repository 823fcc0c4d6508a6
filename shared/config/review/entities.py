"""
What a review may ask about the entities of a namespace.

Read-only protocols, so that whatever describes entities will do: the broker's reader of the emulators' Config.json has
these names.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from shared.config.models import Connection, Source, Target
from shared.rules import Rule


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str: ...


class Deliverer(Named, Protocol):
    """What messages are taken from: a queue or a subscription; None means never for a duration."""

    @property
    def requires_session(self) -> bool: ...
    @property
    def lock_duration(self) -> timedelta: ...
    @property
    def max_delivery_count(self) -> int: ...
    @property
    def default_message_time_to_live(self) -> timedelta | None: ...
    @property
    def forward_to(self) -> str | None: ...
    @property
    def forward_dead_lettered_messages_to(self) -> str | None: ...


class Taker(Named, Protocol):
    """What messages are sent to: a queue or a topic; None means the namespace's own limit for a size."""

    @property
    def default_message_time_to_live(self) -> timedelta | None: ...
    @property
    def requires_duplicate_detection(self) -> bool: ...
    @property
    def duplicate_detection_history_time_window(self) -> timedelta: ...
    @property
    def max_message_size(self) -> int | None: ...


class Queue(Deliverer, Taker, Protocol):
    """A queue."""


class Subscription(Deliverer, Protocol):
    """A topic's subscription, with its rules."""

    @property
    def rules(self) -> Sequence[Rule]: ...


class Topic(Taker, Protocol):
    """A topic."""

    @property
    def subscriptions(self) -> Sequence[Subscription]: ...


class Hub(Named, Protocol):
    """An event hub; the consumer group $Default need not be named."""

    @property
    def partition_count(self) -> int: ...
    @property
    def consumer_groups(self) -> Sequence[str]: ...


class Namespace(Protocol):
    """The entities of one namespace; sizes in bytes."""

    @property
    def queues(self) -> Sequence[Queue]: ...
    @property
    def topics(self) -> Sequence[Topic]: ...
    @property
    def hubs(self) -> Sequence[Hub]: ...
    @property
    def max_message_size(self) -> int: ...


class Entities:
    """The namespaces that are known, by the key of their connection; nothing is known of the others."""

    def __init__(self, namespaces: Mapping[str, Namespace]) -> None:
        """Answer from *namespaces*."""
        self._namespaces = namespaces

    def namespace(self, connection: Connection) -> Namespace | None:
        """Return the namespace behind *connection*, None where it is not known."""
        return self._namespaces.get(connection.key)

    def deliverer(self, connection: Connection, source: Source) -> Queue | Subscription | None:
        """Return the queue or subscription that *source* names, None for a hub and where it is not known."""
        if source.queue is not None:
            return self.queue(connection, source.queue)
        topic = self.topic(connection, source.topic)
        return None if topic is None else _find(topic.subscriptions, source.subscription)

    def subscription(self, connection: Connection, source: Source) -> Subscription | None:
        """Return the subscription that *source* names, None for another entity and where it is not known."""
        topic = self.topic(connection, source.topic)
        return None if topic is None else _find(topic.subscriptions, source.subscription)

    def taker(self, connection: Connection, target: Target) -> Queue | Topic | None:
        """Return the queue or topic that *target* names, None for a hub and where it is not known."""
        return self.queue(connection, target.queue) or self.topic(connection, target.topic)

    def queue(self, connection: Connection, name: str | None) -> Queue | None:
        """Return the queue of this name."""
        namespace = self.namespace(connection)
        return None if namespace is None else _find(namespace.queues, name)

    def topic(self, connection: Connection, name: str | None) -> Topic | None:
        """Return the topic of this name."""
        namespace = self.namespace(connection)
        return None if namespace is None else _find(namespace.topics, name)

    def hub(self, connection: Connection, name: str | None) -> Hub | None:
        """Return the hub of this name."""
        namespace = self.namespace(connection)
        return None if namespace is None else _find(namespace.hubs, name)


def _find[Entity: Named](entities: Sequence[Entity], name: str | None) -> Entity | None:
    """Return the entity of this name; case does not count."""
    return None if name is None else next((each for each in entities if each.name.lower() == name.lower()), None)
