"""
The entities of a namespace, as a review reads them.

They are protocols with the names that the broker's reader of Config.json uses, so that its result can be passed.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol, cast

from shared.rules import Rule
from shared.tasks.models import Connection
from shared.tasks.source import Source


class Named(Protocol):
    """An entity with a name."""

    @property
    def name(self) -> str: ...


class Deliverer(Named, Protocol):
    """A queue or a subscription, from which messages are taken; a duration of None is unlimited."""

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
    @property
    def auto_delete_on_idle(self) -> timedelta | None: ...


class Taker(Named, Protocol):
    """A queue or a topic, to which messages are sent; a size of None is the limit of the namespace."""

    @property
    def default_message_time_to_live(self) -> timedelta | None: ...
    @property
    def requires_duplicate_detection(self) -> bool: ...
    @property
    def duplicate_detection_history_time_window(self) -> timedelta: ...
    @property
    def max_message_size(self) -> int | None: ...
    @property
    def enable_partitioning(self) -> bool: ...
    @property
    def auto_delete_on_idle(self) -> timedelta | None: ...


class Queue(Deliverer, Taker, Protocol):
    """A queue."""


class Subscription(Deliverer, Protocol):
    """A topic's subscription, with its rules."""

    @property
    def rules(self) -> Sequence[Rule]: ...


class Topic(Taker, Protocol):
    """A topic."""

    @property
    def support_ordering(self) -> bool: ...
    @property
    def subscriptions(self) -> Sequence[Subscription]: ...


class Hub(Named, Protocol):
    """An event hub; the consumer group $Default may be left out."""

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
    """The known namespaces, by the key of their connection."""

    def __init__(self, namespaces: Mapping[str, Namespace]) -> None:
        """Look entities up in *namespaces*."""
        self._namespaces = namespaces
        self._indexes: dict[tuple[str, ...], Mapping[str, Named]] = {}

    def namespace(self, connection: Connection) -> Namespace | None:
        """Return the namespace of *connection*, None if unknown."""
        return self._namespaces.get(connection.key)

    def subscription(self, connection: Connection, source: Source) -> Subscription | None:
        """Return the subscription of *source*, None for another entity or if unknown."""
        topic = self.topic(connection, source.topic)
        if topic is None:
            return None
        place = (connection.key, "topics", topic.name.lower())
        return self._find(place, topic.subscriptions, source.subscription)

    def queue(self, connection: Connection, name: str | None) -> Queue | None:
        """Return the queue of this name."""
        namespace = self.namespace(connection)
        return None if namespace is None else self._find((connection.key, "queues"), namespace.queues, name)

    def topic(self, connection: Connection, name: str | None) -> Topic | None:
        """Return the topic of this name."""
        namespace = self.namespace(connection)
        return None if namespace is None else self._find((connection.key, "topics"), namespace.topics, name)

    def hub(self, connection: Connection, name: str | None) -> Hub | None:
        """Return the hub of this name."""
        namespace = self.namespace(connection)
        return None if namespace is None else self._find((connection.key, "hubs"), namespace.hubs, name)

    def _find[Entity: Named](
        self, place: tuple[str, ...], entities: Sequence[Entity], name: str | None
    ) -> Entity | None:
        """Return the entity of this name, ignoring case; *entities* are those at *place*."""
        if name is None:
            return None
        index = self._indexes.get(place)
        if index is None:
            index = self._indexes[place] = {entity.name.lower(): entity for entity in reversed(entities)}
        return cast("Entity | None", index.get(name.lower()))
