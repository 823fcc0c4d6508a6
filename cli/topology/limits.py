"""
What a service refuses, names and numbers of entities, and what entities do that slows tasks or changes an order.

The texts of rules are checked when they are read.

Source:  Microsoft Learn, "Service Bus quotas" and "Event Hubs quotas and limits"; the names as the Resource Manager
         reference documents them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from cli.topology.model import Kind, Namespace
from cli.topology.needs import Needed
from shared.errors import Problem
from shared.review.checks import Check, Checks
from shared.rules import CorrelationFilter
from shared.tasks.topology import TOPOLOGY

_NAMES = {
    Kind.QUEUE: (re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9._-])?"), 260),
    Kind.TOPIC: (re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9._-])?"), 260),
    Kind.SUBSCRIPTION: (re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9._-])?"), 50),
    Kind.HUB: (re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"), 256),
    Kind.CONSUMER_GROUP: (re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"), 50),
}
# Where a warning begins, in the share of a limit.
_NEAR = 0.9
MOST_ENTITIES, MOST_SUBSCRIPTIONS, MOST_SQL_FILTERS, MOST_CORRELATION_FILTERS = 10_000, 2_000, 2_000, 100_000
MOST_PARTITIONED = 100
"""Queues and topics of the Standard tier."""
MOST_HUBS, MOST_GROUPS = 10, 20
_SUBSCRIPTIONS, _GROUPS = (MOST_SUBSCRIPTIONS, "subscriptions"), (MOST_GROUPS, "consumer groups (Standard tier)")
_SQL, _CORRELATION = (MOST_SQL_FILTERS, "SQL rules"), (MOST_CORRELATION_FILTERS, "correlation rules")


def problems_of(alias: str, needed: Mapping[tuple[Kind, str], Needed]) -> Iterator[Problem]:
    """Yield what the service would refuse, so that nothing is begun that cannot be finished."""
    for need in needed.values():
        place = f"{alias} {need.name}: needed by {', '.join(need.needed_by)}"
        pattern, longest = _NAMES[need.name.kind]
        name = need.name.parts[-1]
        if len(name) > longest:
            yield Problem(place, f"has a name of {len(name)} characters, expected at most {longest}", "shorten it")
        elif pattern.fullmatch(name) is None or "//" in name:
            extra = " or /" if need.name.kind in {Kind.QUEUE, Kind.TOPIC} else ""
            yield Problem(
                place, f"has a name that the service refuses, expected letters, digits, . - _{extra}", "rename it"
            )


def warnings_of(alias: str, needed: Mapping[tuple[Kind, str], Needed], present: Namespace) -> Iterator[str]:
    """Yield the limits of the service that the namespace reaches with what is needed, or nearly so."""
    names = {need.name.key: need.name for need in needed.values()}
    names |= {entity.name.key: entity.name for entity in present.entities.values()}
    counts: Counter[tuple[str, int, str]] = Counter()
    for name in names.values():
        entity, need = present.find(name), needed.get(name.key)
        said = None if need is None else need.needs.get("enable_partitioning")
        has = None if entity is None else entity.settings.get("enable_partitioning")
        is_partitioned = bool(has) or (said is not None and said.value is True)
        counts[alias, MOST_PARTITIONED, "partitioned queues and topics (Standard tier)"] += is_partitioned
        counts[alias, MOST_ENTITIES, "queues and topics"] += name.kind in {Kind.QUEUE, Kind.TOPIC}
        counts[alias, MOST_HUBS, "event hubs (Standard tier)"] += name.kind is Kind.HUB
        if name.parent is None:
            continue
        place = f"{alias}/{name.parent.parts[0].lower()}"
        is_subscription = name.kind is Kind.SUBSCRIPTION
        counts[place, *(_SUBSCRIPTIONS if is_subscription else _GROUPS)] += 1
        for rule in entity.rules if entity is not None else [need.rule] if need is not None and need.rule else ():
            counts[place, *(_CORRELATION if isinstance(rule.filter, CorrelationFilter) else _SQL)] += 1
    for (place, most, what), count in counts.items():
        if count >= most * _NEAR:
            verb = "exceeds" if count > most else "is near"
            yield f"{place}: {count} {what}, which {verb} the service's limit of {most}"


def caveats_of(alias: str, needed: Mapping[tuple[Kind, str], Needed], present: Namespace) -> Iterator[str]:
    """Yield what to know of each entity that tasks use; *present* is the namespace once the steps are taken."""
    for need in needed.values():
        entity = present.find(need.name)
        if entity is None or not set(need.needed_by) - {TOPOLOGY}:
            continue
        where = f"{alias}/{'/'.join(need.name.parts)}"
        if need.is_target and entity.settings.get("enable_partitioning"):
            if entity.settings.get("requires_duplicate_detection"):
                yield _line(where, Checks.PARTITIONED_DUPLICATES)
            else:
                text = "does not detect duplicates, because it is partitioned and would then take no batches"
                remedy = (
                    "make its consumers idempotent, or say `duplicate_detection: true` in topology.yaml if it is new"
                )
                yield f"{where}: {text}: {remedy}"
        if entity.settings.get("auto_delete_on_idle") is not None:
            yield _line(where, Checks.DELETES_ITSELF)
        if entity.settings.get("support_ordering") is False:
            yield _line(where, Checks.NO_SUPPORT_ORDERING)
        if need.is_target and entity.settings.get("forward_to"):
            yield _line(where, Checks.FORWARDED)


def _line(where: str, check: Check) -> str:
    return f"{where}: {check.meaning} {check.remedy[0].upper()}{check.remedy[1:]}."
