"""
Reviews a set of tasks as a whole, before any of them runs.

`shared.tasks.files` rejects invalid files; a review looks for mistakes in a valid configuration. It is pure: it
takes the configuration and, if known, the entities of its namespaces and host.json, and returns findings.
"""

from shared.review import (
    deliveries,
    expressions,
    heartbeats,
    host_file,
    loops,
    reach,
    routes,
    rules,
    sessions,
    sources,
)
from shared.review.checks import CHECKS, Check, Finding, Severity
from shared.review.entities import Entities, Namespace
from shared.review.host_file import HostFile
from shared.review.network import Network
from shared.tasks.files import Configuration

__all__ = [
    "CHECKS",
    "Check",
    "Entities",
    "Finding",
    "HostFile",
    "Namespace",
    "Severity",
    "advice",
    "largest_batch",
    "review",
]

_FAMILIES = (
    loops.findings,
    reach.findings,
    rules.findings,
    routes.findings,
    sources.findings,
    sessions.findings,
    deliveries.findings,
    expressions.findings,
    heartbeats.findings,
)


def review(configuration: Configuration, entities: Entities, host: HostFile | None = None) -> list[Finding]:
    """Return everything found about *configuration*, errors first, otherwise in the order of the checks."""
    network = Network(configuration, entities)
    found = dict.fromkeys(finding for family in _FAMILIES for finding in family(network))
    if host is not None:
        found |= dict.fromkeys(host_file.findings(network, host))
    order = {check: position for position, check in enumerate(CHECKS)}
    return sorted(found, key=lambda finding: (finding.check.severity is not Severity.ERROR, order[finding.check]))


def advice(configuration: Configuration, host: HostFile | None) -> list[str]:
    """Return a sentence for each task that does not fit what its `throughput` says; no finding, only advice."""
    return list(host_file.advice(Network(configuration, Entities({})), host))


def largest_batch(configuration: Configuration, entities: Entities, host: HostFile) -> str | None:
    """Return a sentence about the largest batch that the host may hand over, None if none exceeds 4 MiB."""
    return host_file.largest_batch(Network(configuration, entities), host)
