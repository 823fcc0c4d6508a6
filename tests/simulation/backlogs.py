"""What an operator sends again: entities with given-up messages, and where their copies go."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from busway_broker.config import HubConfig, NamespaceConfig, SubscriptionConfig, TopicConfig
from cli.evacuation.survey import Share
from shared.amqp.sections import data, only_data, split
from shared.amqp.values import Value, string
from shared.resend.places import Place, dead_letter_queue, rejects_of
from tests.messages import application_properties, properties
from tests.simulation.topology import Topology, configuration, queue

_LOCK = timedelta(seconds=30)
_TASKS = """
task: orders
source: {connection: west, queue: orders}
routes: [{target: {connection: east, queue: orders}}]
rejects: {connection: west, queue: rejected}
---
task: express
source: {connection: west, queue: express}
routes: [{target: {connection: east, queue: express}}]
rejects: {connection: west, queue: rejected}
"""


@dataclass(frozen=True, eq=False)
class Backlog(Topology):
    """An entity with given-up messages."""

    source: str = "west/orders"
    """The entity whose dead letters they are, or without *is_dead* the one that has them as rejected messages."""
    is_dead: bool = True
    to: str | None = "east/orders"
    """Where the operator sends them, None: where they came from."""
    copies: Sequence[tuple[str, str]] = (("east", "orders"),)
    """The places, as site and path, where the copies are."""
    shows_numbers: bool = True
    """Whether the target's sequence numbers show what never entered it."""
    new_ids: bool = False
    is_partitioned: bool = False
    """Whether the target is."""
    share: Share | None = None
    """What is evacuated, None if given-up messages are sent again."""

    @property
    def place(self) -> Place:
        """Return the entity."""
        find = dead_letter_queue if self.is_dead else rejects_of
        return find(self.source, configuration(self))

    @property
    def targets(self) -> list[tuple[str, str]]:
        """Return the queues, topics and hubs that messages are sent to."""
        return list(dict.fromkeys((site, path.partition("/")[0]) for site, path in self.copies))


def _backlog(name: str, *, sessions: bool = False, rejected: bool = False, **more: object) -> Backlog:
    """Return a queue of the west whose given-up messages go to a queue of the east."""
    is_partitioned, detects = bool(more.get("is_partitioned")), bool(more.pop("detects", False))
    from_partitions = bool(more.pop("from_partitions", False))
    target = replace(
        queue("orders", sessions=sessions),
        enable_partitioning=is_partitioned,
        requires_duplicate_detection=detects,
        duplicate_detection_history_time_window=timedelta(hours=20),
    )
    gives_up = tuple(
        replace(queue(each), lock_duration=_LOCK, enable_partitioning=from_partitions) for each in ("orders", "express")
    )
    west = NamespaceConfig(
        name="west", queues=(*gives_up, replace(queue("rejected", sessions=sessions and rejected), lock_duration=_LOCK))
    )
    east = NamespaceConfig(
        name="east", queues=(target, queue("express")), hubs=(HubConfig(name="events", partition_count=2),)
    )
    kinds = {"east-hub": "event-hubs"}
    options = {"source": "west/rejected", "is_dead": False} if rejected else {}
    return Backlog(name, (west, east), _TASKS, (), kinds, **options | more)  # type: ignore[arg-type] # by their names


def _subscription() -> Backlog:
    """Return a subscription whose dead letters go back to its topic, from which another one gets them too."""
    subscriptions = (SubscriptionConfig(name="app", lock_duration=_LOCK), SubscriptionConfig(name="audit"))
    topic = TopicConfig(name="orders", subscriptions=subscriptions)
    task = """
task: orders
source: {connection: west, topic: orders, subscription: app}
routes: [{target: {connection: east, queue: orders}}]
"""
    return Backlog(
        "dead letters of a subscription",
        (NamespaceConfig(name="west", topics=(topic,)), NamespaceConfig(name="east", queues=(queue("orders"),))),
        task,
        (),
        source="west/orders/Subscriptions/app",
        to="west/orders",
        copies=(("west", "orders/Subscriptions/app"),),
        shows_numbers=False,
    )


BACKLOGS = (
    _backlog("dead letters"),
    _backlog("dead letters to sessions", sessions=True),
    _backlog("dead letters to a detecting queue", detects=True, new_ids=True),
    _backlog("dead letters to a partitioned queue", is_partitioned=True, shows_numbers=False),
    _backlog("dead letters to a hub", to="east-hub/events", copies=(("east", "events"),), shows_numbers=False),
    _subscription(),
    _backlog("rejects with sessions", sessions=True, rejected=True),
    _backlog("rejects", rejected=True),
    _backlog("evacuated messages", rejected=True, source="west/orders", share=Share.ACTIVE),
    _backlog(
        "evacuated dead letters", copies=(("east", "orders"), ("east", "orders/$DeadLetterQueue")), share=Share.DEAD
    ),
    _backlog(
        "evacuated messages of partitions",
        rejected=True,
        source="west/orders",
        share=Share.ACTIVE,
        is_partitioned=True,
        from_partitions=True,
        shows_numbers=False,
    ),
    _backlog(
        "evacuated dead letters of partitions",
        copies=(("east", "orders"), ("east", "orders/$DeadLetterQueue")),
        share=Share.DEAD,
        is_partitioned=True,
        from_partitions=True,
        shows_numbers=False,
    ),
    _backlog("rejects to their sources", rejected=True, to=None, copies=(("west", "orders"), ("west", "express"))),
)


def encoded(name: str, key: str, named: Mapping[str, Value], size: int = 0) -> bytes:
    """Return the message *name* of the session *key*, with properties."""
    fields = properties(message_id=string(name), session_id=string(key))
    return fields + application_properties(named) + data(json.dumps(name).encode().ljust(size))


def name_of(content: bytes) -> str | None:
    """Return the name of a message that was given up, None for another one."""
    body = only_data(split(content).body)
    name = json.loads(body) if body else None
    return name if isinstance(name, str) and name.startswith("dead.") else None
