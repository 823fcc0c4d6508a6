"""The routes of the fault tests: entities in two namespaces, and the task that copies from one to the other."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from busway_broker.config import HubConfig, LinkLimits, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig

# East has the Standard tier and west Premium: a message that is too large goes to rejects.
EAST_LIMIT = 256 * 1024
WEST_LIMIT = 1024 * 1024
# An envelope with this body is larger than an event may be.
GRID_LIMIT = 850_000
REJECTED = "rejected"
CARRIER = "carrier"
CONSUMER_GROUP = "$Default"


class Kind(StrEnum):
    """A kind of source or target."""

    QUEUE = "queue"
    SESSIONS = "sessions"
    HUB = "hub"
    TOPIC = "Kafka topic"


@dataclass(frozen=True)
class Route:
    """A source and a target; the source with sessions is a subscription."""

    source: Kind
    target: Kind
    has_carrier: bool = False
    """Whether messages go in envelopes through a third queue: the host sends them there, a second task opens them."""
    has_storage: bool = False
    """Whether the third queue is one of a storage account."""
    has_grid: bool = False
    """Whether messages go through a topic of Event Grid."""
    lanes: int = 1
    is_single: bool = False
    """Whether the host delivers one message at a time (`dispatch: single`)."""
    is_amqp: bool = False
    """Whether the target is reached as an AMQP 1.0 broker (`kind: amqp`)."""
    from_queue: str = ""
    """The name of the source with sessions, if that is a queue."""
    to_topic: bool = False
    """Whether the target with sessions is a topic; the copies are read from its subscription."""

    def __str__(self) -> str:
        """Return the text in the table."""
        if self.has_storage:
            return f"{self.source} → storage queue → {self.target}"
        if self.has_grid:
            return f"{self.source} → Event Grid → {self.target}"
        if self.has_carrier:
            return f"{self.source} → envelopes → {self.target}"
        how = ", single dispatch" if self.is_single else f", {self.lanes} lanes" if self.lanes > 1 else ""
        if self.is_amqp:
            return f"{self.source} → AMQP {self.target}{how}"
        source = f"queue with {self.source}" if self.from_queue else str(self.source)
        return f"{source} → {'topic with ' if self.to_topic else ''}{self.target}{how}"

    @property
    def keeps_order(self) -> bool:
        """Whether both ends guarantee order per key; a queue of Service Bus without sessions does not."""
        if self.is_amqp:
            return self.source is not Kind.QUEUE
        return Kind.QUEUE not in (self.source, self.target)

    @property
    def too_large(self) -> int | None:
        """Return the size of a body that the source accepts and the target refuses; a hub refuses none."""
        if self.has_grid:
            return GRID_LIMIT
        return None if self.target in {Kind.HUB, Kind.TOPIC} else EAST_LIMIT + 5_000

    @property
    def source_path(self) -> str:
        """Return the path of the source in its namespace."""
        if self.from_queue:
            return self.from_queue
        return {Kind.QUEUE: "jobs", Kind.SESSIONS: "orders/Subscriptions/copy", Kind.HUB: "telemetry"}[self.source]

    @property
    def target_path(self) -> str:
        """Return the path of the target in its namespace, where copies are read."""
        if self.to_topic:
            return "updates/Subscriptions/all"
        return {Kind.QUEUE: "jobs", Kind.SESSIONS: "orders", Kind.HUB: "stream", Kind.TOPIC: "stream"}[self.target]

    def task(self) -> str:
        """Return the task file; it withholds messages with the property `skip`."""
        source = {
            Kind.QUEUE: "{connection: west, queue: jobs}",
            Kind.SESSIONS: "{connection: west, topic: orders, subscription: copy, sessions: true}",
            Kind.HUB: "{connection: hub-west, hub: telemetry}",
        }[self.source]
        if self.from_queue:
            source = f"{{connection: west, queue: {self.from_queue}, sessions: true}}"
        if self.has_carrier:
            return _THROUGH_CARRIER
        if self.has_storage:
            return _THROUGH_STORAGE
        if self.has_grid:
            return _THROUGH_GRID
        target = {
            Kind.HUB: "{connection: hub-east, hub: stream}",
            Kind.TOPIC: "{connection: stream, topic: stream}",
        }.get(self.target)
        if self.to_topic:
            target = "{connection: east, topic: updates}"
        site = "plant" if self.is_amqp else "east"
        return (
            "task: carry\n"
            f"source: {source}\n"
            "routes:\n"
            "  - when: skip IS NULL\n"
            f"    target: {target or f'{{connection: {site}, queue: {self.target_path}}}'}\n"
            f"rejects: {{connection: west, queue: {REJECTED}}}\n"
            f"lanes: {self.lanes}\n"
            f"dispatch: {'single' if self.is_single else 'batch'}\n"
        )


# Small texts, so that the host has several to send for each batch.
_THROUGH_CARRIER = f"""
task: carry
source: {{connection: west, queue: jobs}}
routes:
  - when: skip IS NULL
    target: {{connection: east, queue: {CARRIER}}}
    via: binding
    max_message_bytes: 5000
rejects: {{connection: west, queue: {REJECTED}}}
---
task: open
source: {{connection: east, queue: {CARRIER}, from: envelope}}
loop_prevention: off
routes: [{{target: {{connection: east, queue: jobs}}}}]
rejects: {{connection: west, queue: {REJECTED}}}
"""

_THROUGH_STORAGE = f"""
task: carry
source: {{connection: west, queue: jobs}}
routes:
  - when: skip IS NULL
    target: {{connection: store, queue: {CARRIER}}}
rejects: {{connection: west, queue: {REJECTED}}}
---
task: open
source: {{connection: store, queue: {CARRIER}}}
routes: [{{target: {{connection: east, queue: jobs}}}}]
rejects: {{connection: west, queue: {REJECTED}}}
"""

_THROUGH_GRID = f"""
task: carry
source: {{connection: west, queue: jobs}}
routes:
  - when: skip IS NULL
    target: {{connection: grid, topic: {CARRIER}}}
rejects: {{connection: west, queue: {REJECTED}}}
---
task: open
source: {{connection: grid, webhook: {CARRIER}}}
routes: [{{target: {{connection: east, queue: jobs}}}}]
rejects: {{connection: west, queue: {REJECTED}}}
"""

THROUGH_GRID = Route(Kind.QUEUE, Kind.QUEUE, has_grid=True)
THROUGH_STORAGE = Route(Kind.QUEUE, Kind.QUEUE, has_storage=True)
ENVELOPES = Route(Kind.QUEUE, Kind.QUEUE, has_carrier=True)
QUEUES = Route(Kind.QUEUE, Kind.QUEUE)
SESSIONS = Route(Kind.SESSIONS, Kind.SESSIONS)
SESSIONS_IN_LANES = Route(Kind.SESSIONS, Kind.SESSIONS, lanes=4)
SESSIONS_ONE_BY_ONE = Route(Kind.SESSIONS, Kind.SESSIONS, is_single=True)
SESSIONS_TO_HUB = Route(Kind.SESSIONS, Kind.HUB)
SESSION_QUEUES = Route(Kind.SESSIONS, Kind.SESSIONS, from_queue="cases")
SUBSCRIPTION_TO_TOPIC = Route(Kind.SESSIONS, Kind.SESSIONS, to_topic=True)
QUEUE_TO_HUB = Route(Kind.QUEUE, Kind.HUB)
HUB_TO_SESSIONS = Route(Kind.HUB, Kind.SESSIONS)
HUBS = Route(Kind.HUB, Kind.HUB)
SESSIONS_TO_KAFKA = Route(Kind.SESSIONS, Kind.TOPIC)
HUB_TO_KAFKA = Route(Kind.HUB, Kind.TOPIC)
SESSIONS_TO_AMQP_IN_LANES = Route(Kind.SESSIONS, Kind.SESSIONS, lanes=4, is_amqp=True)
HUB_TO_AMQP = Route(Kind.HUB, Kind.QUEUE, is_amqp=True)

CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
hub-west: {kind: event-hubs, setting: WEST}
east: {kind: service-bus, setting: EAST}
hub-east: {kind: event-hubs, setting: EAST}
plant: {kind: amqp, setting: PLANT}
"""


def west(lock: timedelta, link_idle: timedelta | None = None) -> NamespaceConfig:
    """
    Return the namespace of the sources, which lock for *lock* and dead-letter a message after ten deliveries.

    Links end after *link_idle* without use, by default as on Azure.
    """
    copy = SubscriptionConfig(name="copy", requires_session=True, lock_duration=lock)
    return NamespaceConfig(
        name="west",
        queues=(
            QueueConfig(name="jobs", lock_duration=lock),
            QueueConfig(name="cases", lock_duration=lock, requires_session=True),
            QueueConfig(name=REJECTED),
        ),
        topics=(TopicConfig(name="orders", subscriptions=(copy,)),),
        hubs=(HubConfig(name="telemetry", partition_count=2),),
        max_message_size=WEST_LIMIT,
        links=LinkLimits() if link_idle is None else LinkLimits(link_idle=link_idle),
        released_go_last=True,
    )


EAST = NamespaceConfig(
    name="east",
    queues=(
        QueueConfig(name="jobs"),
        QueueConfig(name="orders", requires_session=True),
        QueueConfig(name=CARRIER),
    ),
    topics=(TopicConfig(name="updates", subscriptions=(SubscriptionConfig(name="all", requires_session=True),)),),
    hubs=(HubConfig(name="stream", partition_count=2),),
    max_message_size=EAST_LIMIT,
    released_go_last=True,
)
"""The namespace of the targets."""
