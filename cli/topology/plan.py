"""A plan: for each namespace what it lacks, and where twins differ."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
    key: str
    place: str
    is_hubs: bool
    difference: Difference | None = None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """What apply does here; hubs are left to Resource Manager."""
        return () if self.difference is None or self.is_hubs else self.difference.steps

    @property
    def by_hand(self) -> tuple[Step, ...]:
        """What Resource Manager must do here."""
        return () if self.difference is None or not self.is_hubs else self.difference.steps


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
        return sum(len(site.difference.extras) for site in self.sites if site.difference is not None)

    @property
    def has_errors(self) -> bool:
        """Whether a namespace could not be read."""
        return any(site.errors for site in self.sites)

    @property
    def needs_a_person(self) -> bool:
        """Whether something differs that apply cannot change."""
        by_hand = any(site.by_hand or (site.difference and site.difference.obstacles) for site in self.sites)
        return by_hand or bool(self.drifts)

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
    others = {alias: configuration.connections[alias].kind for alias in aliases}
    expected = "expected service-bus or event-hubs: Busway does not plan other brokers"
    problems = [
        Problem(alias, f"is of kind {kind}, {expected}")
        for alias, kind in others.items()
        if not configuration.connections[alias].is_namespace
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

    def read(key: str) -> Namespace | list[str]:
        if key in present:
            return present[key]
        alias = needs.aliases[key]
        try:
            return read_site(alias, configuration.connections[alias], needs.namespaces[key])
        except BuswayError as error:
            return [str(problem) for problem in output.problems_of(error)]

    with ThreadPoolExecutor(max(1, len(keys))) as pool:
        found = dict(zip(keys, pool.map(read, keys), strict=True))
    known = {key: each for key, each in found.items() if isinstance(each, Namespace)}
    sites = []
    for key in keys:
        alias = needs.aliases[key]
        connection = configuration.connections[alias]
        place, is_hubs = host_of(connection.setting or "", os.environ), connection.end.has_hubs
        result = found[key]
        if isinstance(result, Namespace):
            needed = needs.namespaces[key]
            heartbeats = {topic: tasks for (other, topic), tasks in needs.heartbeats.items() if other == key}
            found_here = difference(needed, result, heartbeats)
            warnings = (
                *warnings_of(alias, needed, result),
                *_unread_topics(alias, needs, key, result),
                *caveats_of(alias, needed, after(result, found_here.steps)),
            )
            sites.append(SitePlan(alias, key, place, is_hubs, found_here, warnings=warnings))
        else:
            sites.append(SitePlan(alias, key, place, is_hubs, errors=tuple(result)))
    # Steps remove some of the drift; what is left, no task decides.
    later = {site.key: after(known[site.key], site.difference.steps) for site in sites if site.difference is not None}
    return Plan(configuration, needs, tuple(sites), tuple(drifts(needs, later)))


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
