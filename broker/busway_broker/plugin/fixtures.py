"""The values of the fixtures."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from busway_broker.admin.inspection import events, messages
from busway_broker.config import HubConfig, QueueConfig, SubscriptionConfig
from busway_broker.core.administration import Administration
from busway_broker.core.backlog import Counts
from busway_broker.core.namespace import Namespace
from busway_broker.faults import Fault
from busway_broker.plugin.marks import EVENT_HUBS, SERVICE_BUS, topic
from busway_broker.thread import RunningBroker
from shared.clock import ManualClock

_ALL = "1000000"


def new_clock() -> ManualClock:
    """Return a clock that starts now and stands still."""
    return ManualClock(datetime.now(UTC))


class ServiceBus(str):
    """The connection string of a Service Bus namespace, with methods that look at the namespace and change it."""

    __slots__ = ("_broker",)
    _broker: RunningBroker

    def __new__(cls, broker: RunningBroker) -> Self:
        """Return the connection string of the broker's namespace."""
        new = super().__new__(cls, broker.connection_string(SERVICE_BUS))
        new._broker = broker
        return new

    def queue(self, queue: str | QueueConfig) -> str:
        """Create a queue, by name or with its settings, and return its name."""
        config = QueueConfig(name=queue) if isinstance(queue, str) else queue
        self._look(lambda namespace: Administration(namespace).create_queue(config))
        return config.name

    def topic(self, name: str, *subscriptions: str | SubscriptionConfig) -> str:
        """Create a topic with subscriptions, by name or with their settings, and return its name."""
        config = topic(name, subscriptions)
        self._look(lambda namespace: Administration(namespace).create_topic(config))
        return name

    def counts(self, path: str) -> Counts:
        """Return how many messages a queue or subscription (`topic/Subscriptions/name`) holds."""
        found = {each.lower(): counts for each, counts in self._broker.counts(SERVICE_BUS).items()}
        if path.lower() not in found:
            self._look(lambda namespace: namespace.entity(path))
        return found[path.lower()]

    def messages(self, path: str) -> list[dict[str, Any]]:
        """Return the messages of a queue, a subscription or `…/$DeadLetterQueue`, without receiving them."""
        return self._look(lambda namespace: messages(namespace, path, _ALL, has_body=True))

    def _look[Result](self, look: Callable[[Namespace], Result]) -> Result:
        return self._broker.inspect(SERVICE_BUS, look)


class EventHubs(str):
    """The connection string of an Event Hubs namespace, with methods that create hubs and look at events."""

    __slots__ = ("_broker",)
    _broker: RunningBroker

    def __new__(cls, broker: RunningBroker) -> Self:
        """Return the connection string of the broker's namespace."""
        new = super().__new__(cls, broker.connection_string(EVENT_HUBS))
        new._broker = broker
        return new

    def hub(self, name: str, *, partitions: int = 1, consumer_groups: Iterable[str] = ()) -> str:
        """Create a hub and return its name."""
        config = HubConfig(name=name, partition_count=partitions, consumer_groups=tuple(consumer_groups))
        self._broker.inspect(EVENT_HUBS, lambda namespace: Administration(namespace).create_hub(config))
        return name

    def events(self, hub: str, partition: int = 0) -> list[dict[str, Any]]:
        """Return the events of a partition with their bodies."""
        return self._broker.inspect(EVENT_HUBS, lambda namespace: events(namespace, hub, str(partition), _ALL))


class BrokerClock:
    """The clock of the broker: it stands still until a test advances it."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker

    def now(self) -> datetime:
        """Return the broker's time; a scheduled message is due when this reaches its time."""
        return self._broker.inspect(SERVICE_BUS, lambda namespace: namespace.clock.now())

    def advance(self, time: float | timedelta) -> None:
        """Advance by seconds or a timedelta: locks and messages expire, scheduled messages become active."""
        self._broker.advance(time.total_seconds() if isinstance(time, timedelta) else time)


class BrokerFaults:
    """Makes operations fail, in both namespaces."""

    def __init__(self, broker: RunningBroker) -> None:
        self.service_bus = broker.faults(SERVICE_BUS)
        """The faults of the Service Bus namespace alone."""
        self.event_hubs = broker.faults(EVENT_HUBS)
        """The faults of the Event Hubs namespace alone."""
        self._namespaces = self.service_bus, self.event_hubs

    def add(self, effect: str, entity: str = "*", **options: object) -> None:
        """
        Add a fault, such as `add("throttle", "orders", times=2)`; ConfigError for an unknown effect or option.

        The options are the fields of `Fault`: operations (a list), containing, at, times, probability, seed, delay,
        takes_effect, condition, description.
        """
        fault = Fault.read({"effect": effect, "entity": entity, **options})
        for namespace in self._namespaces:
            namespace.add(fault)

    def clear(self) -> None:
        """Remove all faults."""
        for namespace in self._namespaces:
            namespace.clear()

    def cut_connections(self) -> None:
        """Break all connections now, as a network failure would; new ones are accepted."""
        for namespace in self._namespaces:
            namespace.cut_connections()

    def upgrade(self) -> None:
        """End the locks on sessions, and then all connections, as an upgrade of the service does."""
        for namespace in self._namespaces:
            namespace.upgrade()

    def go_down(self) -> None:
        """Break all connections and accept no new ones; messages, locks and timers continue."""
        for namespace in self._namespaces:
            namespace.go_down()

    def come_up(self) -> None:
        """Accept connections again, on the same ports."""
        for namespace in self._namespaces:
            namespace.come_up()

    def expire_locks(self, path: str) -> None:
        """End all locks on a queue, a subscription or one of their dead-letter queues now."""
        self.service_bus.expire_locks(path)
