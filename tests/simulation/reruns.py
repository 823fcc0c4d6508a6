"""Topologies whose losses an operator repairs, or whose messages are replayed."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from busway_broker.config import NamespaceConfig, SubscriptionConfig
from tests.simulation.topologies import HUB_AND_BACK, HUB_TO_HUB, PAIR, PAIR_WITH_SESSIONS, TARGETS_OF_HUB
from tests.simulation.topology import Topology

GROUP = "operator"
"""The consumer group of the operator: that of the app has readers with an epoch."""
_ARCHIVE = "archive"


class Command(StrEnum):
    """What the operator runs."""

    REPAIR = "repair"
    REPLAY = "replay"


@dataclass(frozen=True, eq=False)
class Rerun(Topology):
    """A topology, and what an operator does once the app has carried all messages."""

    command: Command = Command.REPAIR
    copies: Sequence[str] = ()
    """The entities with copies, as CONNECTION/ENTITY."""


def _rerun(command: Command, topology: Topology) -> Rerun:
    """Return *topology* with an archive of each topic, and a consumer group for the operator."""
    values = {field.name: getattr(topology, field.name) for field in fields(Topology)}
    values |= {"name": f"{command} of {topology.name}", "namespaces": [*map(_archived, topology.namespaces)]}
    archives = [
        f"{namespace.name}/{topic.name}/Subscriptions/{_ARCHIVE}"
        for namespace in topology.namespaces
        for topic in namespace.topics
    ]
    return Rerun(**values, command=command, copies=archives)


def _archived(namespace: NamespaceConfig) -> NamespaceConfig:
    archive = SubscriptionConfig(name=_ARCHIVE)
    return replace(
        namespace,
        topics=tuple(replace(topic, subscriptions=(*topic.subscriptions, archive)) for topic in namespace.topics),
        hubs=tuple(replace(hub, consumer_groups=(GROUP,)) for hub in namespace.hubs),
    )


RERUNS = tuple(
    _rerun(command, topology)
    for command in Command
    for topology in (PAIR, PAIR_WITH_SESSIONS, HUB_AND_BACK, HUB_TO_HUB, TARGETS_OF_HUB)
)
