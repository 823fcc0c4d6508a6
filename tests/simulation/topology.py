"""What a topology is: task files as an operator writes them, the entities they need, where each message must arrive."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from pathlib import Path

from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from shared.rules.rule import parse_action, parse_filter
from shared.rules.ruleset import Rule
from shared.tasks.files import Configuration, load
from shared.tasks.models import TaskFile

DEAD_LETTERS = "/$DeadLetterQueue"
"""Behind the path of an entity."""
MOST_DELIVERIES = 4_320


@dataclass(frozen=True, eq=False)
class Input:
    """Where an application sends: a queue, topic or hub, or the dead-letter queue of a queue."""

    site: str
    entity: str
    targets: Sequence[tuple[str, str]]
    """The places, as site and path, where each message must arrive unless something withholds it."""
    choose: str | None = None
    """A property: with a value of its own each message goes to the first target, without one to the second."""
    task: str = ""
    """The task that takes it from there first."""
    is_dead: bool = False
    has_bodies_only: bool = False
    """Whether nothing of a message arrives but its body."""
    beyond: str | None = None
    """The site from which a second task carries it on to its targets."""
    is_repeated: bool = False
    """Whether the application sends each message twice, and the task one of them."""
    schedules: bool = False
    """Whether the application schedules some messages."""


@dataclass(frozen=True, eq=False)
class Topology:
    """Sites, tasks and inputs."""

    name: str
    namespaces: Sequence[NamespaceConfig]
    tasks: str
    inputs: Sequence[Input]
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kind by connection, service-bus unless said otherwise; a connection is named as its site or `SITE-hub`."""
    has_order: bool = True
    splits: bool = False
    joins: bool = False
    """Whether a copy holds several messages."""
    has_mark: bool = False
    """Whether the rule of the source sets a property."""
    dead_letters: bool = False
    """Whether the tasks have no `rejects`, so that the dead-letter queue of the source gets what is rejected."""
    refuses: tuple[str, str] | None = None
    """The only place that refuses what is heavy, None if all do."""
    detects: bool = False
    """Whether the targets keep no copy twice."""
    ring: Sequence[str] = ()
    """Its sites, where each carries what it receives on to the next one."""
    taps: int = 2
    """Where taps see what the task of an input has done: 2, at its source and its targets; 1, at its source; 0."""

    def __str__(self) -> str:
        """Return its name."""
        return self.name

    def way(self, source: Input, site: str) -> Sequence[str]:
        """Return the sites that a message from *source* has left when it arrives at *site*."""
        if source.beyond is not None:
            return [source.site, source.beyond]
        if source.site == site or not self.ring:
            return [source.site] * (source.site != site)
        again = [*self.ring, *self.ring]
        begin = again.index(source.site)
        return again[begin : again.index(site, begin)]

    @property
    def places(self) -> list[tuple[str, str]]:
        """Return all places where messages arrive."""
        return list(dict.fromkeys(target for source in self.inputs for target in source.targets))


def queue(name: str, *, sessions: bool = False) -> QueueConfig:
    """Return a queue."""
    return QueueConfig(
        name=name,
        requires_session=sessions,
        max_delivery_count=MOST_DELIVERIES,
        dead_lettering_on_message_expiration=True,
    )


def topic(name: str, *, sessions: bool = False) -> TopicConfig:
    """Return a topic with a subscription for the application, and one for replication as in the documentation."""
    rule = Rule("replicate", parse_filter("replication IS NULL"), parse_action("SET replication = 1"))
    replication = SubscriptionConfig(
        name="replication", rules=(rule,), requires_session=sessions, max_delivery_count=MOST_DELIVERIES
    )
    return TopicConfig(name=name, subscriptions=(SubscriptionConfig(name="app"), replication))


@cache
def locked(topology: Topology, seconds: float) -> Sequence[NamespaceConfig]:
    """Return the namespaces of *topology* with locks that last so long."""
    duration = timedelta(seconds=seconds)

    def of(entity: TopicConfig) -> TopicConfig:
        subscriptions = tuple(replace(each, lock_duration=duration) for each in entity.subscriptions)
        return replace(entity, subscriptions=subscriptions)

    return [
        replace(
            namespace,
            queues=tuple(replace(each, lock_duration=duration) for each in namespace.queues),
            topics=tuple(map(of, namespace.topics)),
        )
        for namespace in topology.namespaces
    ]


@cache
def configuration(topology: Topology) -> Configuration:
    """Return the configuration of the task files of *topology*."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tasks").mkdir()
        aliases = {namespace.name: "service-bus" for namespace in topology.namespaces} | dict(topology.kinds)
        lines = [
            f"{alias}: {{kind: {kind}, setting: {alias.upper().replace('-', '_')}, site: {alias.removesuffix('-hub')}}}"
            for alias, kind in aliases.items()
        ]
        (folder / "connections.yaml").write_text("\n".join(lines) + "\n")
        (folder / "journal.yaml").write_text("blob: {setting: JOURNAL, container: journal}\n")
        (folder / "tasks" / "tasks.yaml").write_text(topology.tasks)
        return load(folder)


def settings_of(topology: Topology) -> dict[str, str]:
    """Return the app settings of its connections."""
    text = "Endpoint=sb://{}/;SharedAccessKeyName=n;SharedAccessKey=bm8=;UseDevelopmentEmulator=true"
    return {
        connection.key: text.format(alias.removesuffix("-hub"))
        for alias, connection in configuration(topology).connections.items()
    }


def source_path(task: TaskFile) -> str:
    """Return the path of the queue or subscription that a task takes messages from."""
    source = task.source
    path = source.queue or f"{source.topic}/Subscriptions/{source.subscription}"
    return path + (DEAD_LETTERS if source.dead_letter else "")
