"""A plan: for each namespace what it lacks, and where twins differ."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from cli import output
from cli.topology.difference import Difference, Step, after, difference
from cli.topology.limits import caveats_of, problems_of, warnings_of
from cli.topology.model import Kind, Namespace
from cli.topology.needs import Needs, needs_of
from cli.topology.sites import read_files, read_site
from cli.topology.topology_file import read_topology
from cli.topology.twins import Drift, drifts
from shared.ends.service_bus.administration import host_of
from shared.errors import BuswayError, ConfigError, Problem
from shared.message.heartbeat import ENTITY
from shared.tasks.files import Configuration, load


@dataclass(frozen=True)
class SitePlan:
    """The plan of one namespace; with an error it is unknown what it has."""

    alias: str
    place: str
    is_hubs: bool
    difference: Difference = field(default_factory=Difference)
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """What apply does here; hubs are left to Resource Manager."""
        return () if self.is_hubs else self.difference.steps

    @property
    def by_hand(self) -> tuple[Step, ...]:
        """What Resource Manager must do here."""
        return self.difference.steps if self.is_hubs else ()


@dataclass(frozen=True)
class Plan:
    """The plans of all namespaces."""

    configuration: Configuration
    needs: Needs
    sites: tuple[SitePlan, ...]
    drifts: tuple[Drift, ...] = ()

    @property
    def steps(self) -> int:
        """How many steps apply would take, without deletions."""
        return sum(len(site.steps) for site in self.sites)

    @property
    def extras(self) -> int:
        """How many deletions `--prune` would add."""
        return sum(len(site.difference.extras) for site in self.sites)

    @property
    def has_errors(self) -> bool:
        """Whether a namespace could not be read."""
        return any(site.errors for site in self.sites)

    @property
    def needs_a_person(self) -> bool:
        """Whether something differs that apply cannot change."""
        return bool(self.drifts) or any(site.by_hand or site.difference.obstacles for site in self.sites)

    @property
    def exit_code(self) -> int:
        """The exit code of `busway plan`."""
        if self.has_errors:
            return 1
        if self.steps:
            return 3
        return 4 if self.needs_a_person else 0


def load_needs(folder: Path, aliases: Sequence[str] = ()) -> tuple[Configuration, Needs]:
    """
    Return a configuration and what it needs of the connections *aliases*, by default of all.

    Raises ConfigError, also for what the services would refuse.
    """
    configuration = load(folder)
    unknown = [alias for alias in aliases if alias not in configuration.connections]
    if unknown:
        expected = ", ".join(configuration.connections) or "none"
        raise ConfigError(
            [Problem(each, "is not a connection", f"connections.yaml has {expected}") for each in unknown]
        )
    kinds = {alias: configuration.connections[alias] for alias in aliases}
    expected = "expected service-bus or event-hubs: Busway does not plan other brokers"
    problems = [
        Problem(alias, f"is of kind {each.kind}, {expected}") for alias, each in kinds.items() if not each.is_namespace
    ]
    if problems:
        raise ConfigError(problems)
    needs = needs_of(configuration, read_topology(folder))
    wanted = {configuration.connections[alias].key for alias in aliases} or set(needs.namespaces)
    problems = [problem for key in wanted for problem in problems_of(needs.aliases[key], needs.namespaces[key])]
    if problems:
        raise ConfigError(sorted(problems, key=str))
    return configuration, Needs(
        {key: needed for key, needed in needs.namespaces.items() if key in wanted},
        needs.aliases,
        tuple(twin for twin in needs.twins if twin[0] in wanted and twin[1] in wanted),
        needs.heartbeats,
    )


def make_plan(configuration: Configuration, needs: Needs, files: Iterable[str] = ()) -> Plan:
    """
    Read the namespaces, all at the same time, and return what each lacks; one that cannot be read has errors instead.

    What *files* describe, each a Config.json, is not read from its namespace. Raises ConfigError for such a file.
    """
    present = read_files(files, configuration)
    keys = [key for key, needed in needs.namespaces.items() if needed]

    def plan_of(key: str) -> tuple[SitePlan, Namespace | None]:
        alias, needed = needs.aliases[key], needs.namespaces[key]
        connection = configuration.connections[alias]
        place, is_hubs = host_of(connection.setting or "", os.environ), connection.end.has_hubs
        try:
            found = present[key] if key in present else read_site(alias, connection, needed)
        except BuswayError as error:
            return SitePlan(alias, place, is_hubs, errors=tuple(map(str, output.problems_of(error)))), None
        heartbeats = {topic: tasks for (other, topic), tasks in needs.heartbeats.items() if other == key}
        lacks = difference(needed, found, heartbeats)
        later = after(found, lacks.steps)
        warnings = (
            *warnings_of(alias, needed, found),
            *_unread_topics(alias, needs, key, found),
            *caveats_of(alias, needed, later),
        )
        return SitePlan(alias, place, is_hubs, lacks, warnings=warnings), later

    with ThreadPoolExecutor(max(1, len(keys))) as pool:
        planned = dict(zip(keys, pool.map(plan_of, keys), strict=True))
    # Steps remove some of the drift; what is left, no task decides.
    later = {key: namespace for key, (_, namespace) in planned.items() if namespace is not None}
    return Plan(configuration, needs, tuple(site for site, _ in planned.values()), tuple(drifts(needs, later)))


def _unread_topics(alias: str, needs: Needs, key: str, present: Namespace) -> Iterable[str]:
    """Yield the topics that tasks send to and nobody subscribes to."""
    names = [entity.name for entity in present.entities.values()]
    names += [need.name for need in needs.namespaces[key].values()]
    subscribed = {name.parts[0].lower() for name in names if name.kind is Kind.SUBSCRIPTION}
    for need in needs.namespaces[key].values():
        topic = need.name.parts[0]
        if need.name.kind is Kind.TOPIC and topic.lower() not in subscribed and topic != ENTITY:
            text = "has no subscription, so it discards what is sent to it"
            yield f"{alias}/{need.name.parts[0]}: {text}; add the application's to topology.yaml"
