"""
The entities that a set of tasks needs, computed from its files alone.

1. A source needs its queue, its topic and subscription with the declared rule, or its hub and consumer group. Sessions
   are as the task says. Deliveries outlast a night of failed holds, and in a new entity three days.
2. A target or rejects entity needs a queue, topic or hub. A new one detects duplicates for as long as its sources
   redeliver, unless it is partitioned: with both it would take no batches (Azure/azure-sdk-for-python issue 21955).
   A new queue has sessions if all tasks that send to it keep the order of sessions; a new topic keeps the order.
3. `topology.yaml` overrides what is chosen here for new entities, and names the entities of applications.

Source:  docs/decisions/0045-entities-from-tasks.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import ceil

from cli.topology.model import RULE_NAME, Kind, Name, Setting, SubscriptionRule
from cli.topology.topology_file import TopologyFile
from shared.errors import ConfigError, Problem
from shared.line.deadline import DEFAULT_HOLD
from shared.message.heartbeat import ENTITY, HIDING
from shared.review.deliveries import OUTAGE
from shared.review.known_properties import SESSION_ID, assigned
from shared.tasks.files import Configuration
from shared.tasks.heartbeats import heartbeat_targets, heartbeat_topics, hiding, source_rule
from shared.tasks.journal_models import TapFile
from shared.tasks.models import TaskFile
from shared.tasks.routes import Target
from shared.tasks.source import DEFAULT_CONSUMER_GROUP, Source
from shared.tasks.topology import TOPOLOGY

LOCK = timedelta(minutes=1)
SHORTEST_LOCK = timedelta(seconds=30)
# Where locks cannot be renewed, a delivery lasts as long as one of them.
DELIVERIES = OUTAGE // LOCK
SHORTEST_WINDOW, LONGEST_WINDOW = timedelta(minutes=10), timedelta(days=7)
NEW_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Need:
    """
    A setting of an entity: what a new one gets, and what one that exists must have.

    `must` is required as it is, `least` at least; without either, one that exists keeps what it has.
    """

    value: Setting
    reason: str
    must: bool = False
    least: Setting = None


@dataclass(slots=True)
class Needed:
    """An entity that tasks or topology.yaml need."""

    name: Name
    needs: dict[str, Need] = field(default_factory=dict)
    rule: SubscriptionRule | None = None
    rule_if_new: SubscriptionRule | None = None
    """The first rule of a new subscription, if none is declared; one that exists keeps what it has."""
    rule_place: str = ""
    """The task file, or topology.yaml, that declares the rule."""
    needed_by: list[str] = field(default_factory=list)
    is_source: bool = False
    """Whether a task receives from it: it is created after everything that the task sends to."""
    is_target: bool = False
    """Whether a task sends to it."""


@dataclass(frozen=True)
class Needs:
    """The entities that are needed in each namespace, by the key of its connection."""

    namespaces: dict[str, dict[tuple[Kind, str], Needed]]
    aliases: dict[str, str]
    """The alias by which each namespace is called, by the key of its connection."""
    twins: tuple[tuple[str, str, Name], ...]
    """Pairs of namespaces with the queue, topic or hub that tasks copy from one to the other under the same name."""
    heartbeats: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """The tasks that send heartbeats to a topic, by the key of its connection and its name in lower case."""


def needs_of(configuration: Configuration, topology: TopologyFile | None) -> Needs:
    """Return what *configuration* needs; raises ConfigError if two of its files need different things of one entity."""
    collector = _Collector(configuration)
    for task in configuration.tasks:
        collector.add_task(task)
    for tap in configuration.taps:
        collector.add_source(tap.source, tap, tap.task, DEFAULT_HOLD, is_tap=True)
    journal = configuration.journal
    if journal is not None and journal.event_hub is not None:
        hub = collector.entity(journal.event_hub.connection, Name(Kind.HUB, (journal.event_hub.hub,)), "journal.yaml")
        hub.needs.setdefault("partition_count", Need(NEW_PARTITIONS, "for the journal"))
    collector.add_windows()
    if topology is not None:
        collector.add_topology(topology)
    collector.add_heartbeats()
    if collector.problems:
        raise ConfigError(collector.problems)
    return Needs(collector.namespaces, collector.aliases, tuple(dict.fromkeys(collector.twins())), collector.heartbeats)


class _Collector:
    """Collects needs by namespace, and the conflicts between them."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.namespaces: dict[str, dict[tuple[Kind, str], Needed]] = {}
        self.aliases: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.heartbeats: dict[tuple[str, str], list[str]] = {}
        for alias, connection in configuration.connections.items():
            if not connection.is_namespace:
                continue
            self.aliases.setdefault(connection.key, alias)
            self.namespaces.setdefault(connection.key, {})

    def entity(self, alias: str, name: Name, needed_by: str) -> Needed:
        """Return the needed entity of this name, new if this is the first need of it."""
        entities = self.namespaces.get(self.configuration.connections[alias].key)
        if entities is None:
            return Needed(name)  # at a broker of somebody else, which nobody plans
        needed = entities.setdefault(name.key, Needed(name))
        if needed_by not in needed.needed_by:
            needed.needed_by.append(needed_by)
        return needed

    def add_task(self, task: TaskFile) -> None:
        """Add what a task receives from and sends to."""
        self.add_source(task.source, task, task.task, task.limits.hold)
        for branch in task.branches():
            route, target = branch.route, self.target(branch.target, task.task)
            if branch.target.kind == "queue" and not task.source.dead_letter:
                # Not yet decided: all tasks that send here have a say.
                present = target.needs.get("requires_session")
                if present is None or not present.must:
                    is_kept = task.source.sessions and route.via == "sdk"
                    has_sessions = is_kept or SESSION_ID in assigned(route.action)
                    has_sessions = has_sessions and (present is None or present.value is True)
                    reason = f"{task.task} sends session ids" if has_sessions else "not all senders set session ids"
                    target.needs["requires_session"] = Need(has_sessions, reason)
            self.partitions(branch.target, target, task, branch.path.removesuffix(".target"))
        if task.rejects is not None:
            rejects = self.target(task.rejects, task.task)
            self.partitions(task.rejects, rejects, task, "rejects")
            if task.rejects.kind == "queue":
                self.must(rejects, "requires_session", False, "rejected messages may have no session", task)

    def add_source(
        self, source: Source, task: TaskFile | TapFile, by: str, hold: timedelta, *, is_tap: bool = False
    ) -> None:
        """Add what a task or tap reads from."""
        if source.hub is not None:
            self.hub_source(source, by)
            return
        if source.queue is not None:
            needed = self.entity(source.connection, Name(Kind.QUEUE, (source.queue,)), by)
        else:
            self.topic(self.entity(source.connection, Name(Kind.TOPIC, (source.topic or "",)), by))
            name = Name(Kind.SUBSCRIPTION, (source.topic or "", source.subscription or ""))
            needed = self.entity(source.connection, name, by)
        if source.dead_letter or (is_tap and source.queue is not None):
            # The entity is an application's: its deliveries and sessions are, too.
            return
        needed.is_source = True
        self.must(needed, "requires_session", source.sessions, f"{by} says `sessions: {_shown(source.sessions)}`", task)
        least = deliveries_for(hold)
        needed.needs["lock_duration"] = Need(LOCK, "short enough after a crash, renewed by Busway", least=SHORTEST_LOCK)
        known = needed.needs.get("max_delivery_count")
        if known is None or (isinstance(known.least, int) and known.least < least):
            minutes = hold.total_seconds() / 60
            held = f"{minutes:g} min" if minutes >= 1 else f"{hold.total_seconds():g} s"
            reason = f"an outage of three days takes {least} deliveries of {held}, or {DELIVERIES} of one lock"
            needed.needs["max_delivery_count"] = Need(DELIVERIES, reason, least=least)
        if needed.name.kind is Kind.SUBSCRIPTION:
            needed.needs["dead_lettering_on_filter_evaluation_exceptions"] = Need(
                True, "an error in the rule must be visible"
            )
            declared = source_rule(task) if isinstance(task, TaskFile) else source.rule
            if declared is not None:
                rule = SubscriptionRule(RULE_NAME, declared.filter, declared.action)
                self.set_rule(needed, rule, f"{self.configuration.place(task)}: source.rule")

    def hub_source(self, source: Source, by: str) -> None:
        hub = self.entity(source.connection, Name(Kind.HUB, (source.hub or "",)), by)
        least = max(source.partitions) + 1 if source.partitions else None
        known = hub.needs.get("partition_count")
        most = max(NEW_PARTITIONS, least or 0, known.value if known and isinstance(known.value, int) else 0)
        hub.needs["partition_count"] = Need(most, f"{by} reads partitions" if least else "by default", least=least)
        group = source.consumer_group or DEFAULT_CONSUMER_GROUP
        if group.lower() != DEFAULT_CONSUMER_GROUP.lower():
            name = Name(Kind.CONSUMER_GROUP, (source.hub or "", group))
            self.entity(source.connection, name, by).is_source = True

    def target(self, target: Target, by: str) -> Needed:
        kind = {"queue": Kind.QUEUE, "topic": Kind.TOPIC, "hub": Kind.HUB}.get(target.kind, Kind.QUEUE)
        needed = self.entity(target.connection, Name(kind, (target.entity,)), by)
        needed.is_target = True
        self.topic(needed)
        return needed

    @staticmethod
    def topic(needed: Needed) -> None:
        """Let a new topic pass messages on in order, which some clients create without."""
        if needed.name.kind is Kind.TOPIC:
            needed.needs.setdefault("support_ordering", Need(True, "subscriptions get messages in order"))

    def partitions(self, target: Target, needed: Needed, task: TaskFile, path: str) -> None:
        """Add the partitions that a target hub needs."""
        if needed.name.kind is not Kind.HUB:
            return
        known = needed.needs.get("partition_count", Need(NEW_PARTITIONS, "by default"))
        if isinstance(target.partition, int):
            count = target.partition + 1
            if not isinstance(known.value, int) or known.value < count:
                known = Need(count, f"{task.task}: {path} names partition {target.partition}", least=count)
        needed.needs["partition_count"] = known

    def add_windows(self) -> None:
        """Let each new target remember ids for as long as its sources redeliver."""
        for task in self.configuration.tasks:
            deliveries = 1 if task.source.dead_letter else deliveries_for(task.limits.hold)
            window = min(max(SHORTEST_WINDOW, LOCK * deliveries), LONGEST_WINDOW)
            # Not of `rejects`: what several parts or targets refuse, or again after a resend, has one id.
            for _, _, _, target in task.branches():
                needed = self.target(target, task.task)
                if needed.name.kind is Kind.HUB:
                    continue
                needed.needs["requires_duplicate_detection"] = Need(True, "a retry may send a message twice")
                known = needed.needs.get("duplicate_detection_history_time_window")
                if known is None or (isinstance(known.value, timedelta) and known.value < window):
                    reason = f"{task.task} redelivers for that long after a crash"
                    needed.needs["duplicate_detection_history_time_window"] = Need(window, reason)

    def add_topology(self, topology: TopologyFile) -> None:
        """Add what topology.yaml says; a task's need that it contradicts is a conflict."""
        for alias, entity in topology.entities(self.configuration, self.problems):
            if entity.name.parent is not None:
                self.entity(alias, entity.name.parent, TOPOLOGY)
            needed = self.entity(alias, entity.name, TOPOLOGY)
            for setting, value in entity.settings.items():
                present = needed.needs.get(setting)
                if present is not None and not _fits(present, value):
                    expected = present.value if present.must else f"at least {present.least}"
                    text = f"says {setting} {_shown(value)}, but {present.reason}, which needs {_shown(expected)}"
                    self.problems.append(
                        Problem(f"{topology.place}: {alias} {entity.name}", text, "change one of them")
                    )
                    continue
                needed.needs[setting] = Need(value, f"{TOPOLOGY} says so", must=True)
            if entity.settings.get("enable_partitioning"):
                self.partitioned(needed, entity.settings)
            for rule in entity.rules:
                self.set_rule(needed, rule, f"{topology.place}: {alias} {entity.name}")

    @staticmethod
    def partitioned(needed: Needed, said: Mapping[str, Setting]) -> None:
        """Leave out of a new partitioned entity what nobody asked for and what is not to be had there."""
        detection = {"requires_duplicate_detection", "duplicate_detection_history_time_window"}
        if needed.is_target and not detection & said.keys():
            reason = "a partitioned entity that detects duplicates takes no batches"
            needed.needs["requires_duplicate_detection"] = Need(False, reason)
        needed.needs.pop("support_ordering", None)

    def add_heartbeats(self) -> None:
        """Add the entities beside targets, and hide heartbeats from the subscriptions that no task reads."""
        for task in self.configuration.tasks:
            for target in heartbeat_targets(task):
                if target.entity == ENTITY:
                    beside = self.target(target, task.task)
                    if target.kind == "hub":
                        beside.needs.setdefault("partition_count", Need(1, "for heartbeats"))
        for alias, topic, name in heartbeat_topics(self.configuration.tasks):
            key = self.configuration.connections[alias].key
            if key in self.namespaces:
                self.heartbeats.setdefault((key, topic.lower()), []).append(name)
        for key, topic in self.heartbeats:
            for needed in self.namespaces[key].values():
                parent = needed.name.parent
                if parent is None or parent.key != (Kind.TOPIC, topic) or needed.is_source:
                    continue
                if needed.rule is None:
                    needed.rule_if_new = SubscriptionRule(RULE_NAME, HIDING)
                elif isinstance(needed.rule.filter, str):
                    needed.rule = replace(needed.rule, filter=hiding(needed.rule.filter))

    def must(self, needed: Needed, setting: str, value: Setting, reason: str, task: TaskFile | TapFile) -> None:
        present = needed.needs.get(setting)
        if present is not None and present.must and present.value != value:
            place = f"{self.configuration.place(task)}: {task.task}"
            text = f"needs {needed.name} with {setting} {_shown(value)}, but {present.reason}"
            self.problems.append(Problem(place, text, "give each its own entity"))
            return
        needed.needs[setting] = Need(value, reason, must=True)

    def set_rule(self, needed: Needed, rule: SubscriptionRule, place: str) -> None:
        if needed.rule is not None and not needed.rule.does_the_same(rule):
            text = f"wants {rule} on {needed.name}, but {needed.rule_place} wants {needed.rule}"
            self.problems.append(Problem(place, text, "give one of the tasks a subscription of its own"))
            return
        needed.rule, needed.rule_place = rule, place

    def twins(self) -> Iterator[tuple[str, str, Name]]:
        """Yield what tasks copy to an entity of the same kind and name in another namespace."""
        connections = self.configuration.connections
        for task in self.configuration.tasks:
            source = task.source
            kind = Kind.QUEUE if source.queue else Kind.TOPIC if source.topic else Kind.HUB
            name = Name(kind, (source.sent_to,))
            for _, _, _, target in task.branches():
                here, there = connections[source.connection].key, connections[target.connection].key
                is_same = target.kind == kind and target.entity.lower() == name.parts[0].lower()
                if is_same and here != there and {here, there} <= self.namespaces.keys():
                    first, second = sorted((here, there))
                    yield first, second, name


def deliveries_for(hold: timedelta) -> int:
    """Return how many deliveries outlast an outage if each is held for *hold*, or for a lock if that is longer."""
    return ceil(OUTAGE / max(hold, LOCK))


def _fits(need: Need, value: Setting) -> bool:
    if need.must:
        return need.value == value
    if isinstance(need.least, int) and isinstance(value, int):
        return value >= need.least
    if isinstance(need.least, timedelta):
        return not isinstance(value, timedelta) or value >= need.least
    return True


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
