"""
What a service refuses, names and numbers of entities, and what entities do that slows tasks or changes an order.

The texts of rules are checked when they are read.

Source:  Microsoft Learn, "Service Bus quotas" and "Event Hubs quotas and limits"; the names as the Resource Manager
         reference documents them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from cli.topology.model import Kind, Name, Namespace
from cli.topology.needs import Needed
from shared.errors import Problem
from shared.review.checks import DELETES_ITSELF, FORWARDED, NO_SUPPORT_ORDERING, PARTITIONED_DUPLICATES, Check
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
    names: dict[tuple[Kind, str], Name] = {entity.name.key: entity.name for entity in present.entities.values()}
    names |= {need.name.key: need.name for need in needed.values() if need.name.key not in names}
    kinds = Counter(kind for kind, _ in names)
    partitioned = {
        entity.name.key for entity in present.entities.values() if entity.settings.get("enable_partitioning")
    }
    partitioned |= {
        need.name.key
        for need in needed.values()
        if (said := need.needs.get("enable_partitioning")) is not None and said.value is True
    }
    counts = [
        (alias, len(partitioned), MOST_PARTITIONED, "partitioned queues and topics (Standard tier)"),
        (alias, kinds[Kind.QUEUE] + kinds[Kind.TOPIC], MOST_ENTITIES, "queues and topics"),
        (alias, kinds[Kind.HUB], MOST_HUBS, "event hubs (Standard tier)"),
    ]
    parts: Counter[tuple[Kind, str]] = Counter()
    sql: Counter[str] = Counter()
    correlation: Counter[str] = Counter()
    for name in names.values():
        parent = name.parent
        if parent is None:
            continue
        parts[name.kind, parent.parts[0].lower()] += 1
        entity = present.find(name)
        need = needed.get(name.key)
        rules = list(entity.rules) if entity is not None else [need.rule] if need is not None and need.rule else []
        for rule in rules:
            (correlation if isinstance(rule.filter, CorrelationFilter) else sql)[parent.parts[0].lower()] += 1
    for (kind, parent_name), count in parts.items():
        is_subscription = kind is Kind.SUBSCRIPTION
        most, what = (MOST_SUBSCRIPTIONS, "subscriptions") if is_subscription else (MOST_GROUPS, "consumer groups")
        counts.append((f"{alias}/{parent_name}", count, most, what if is_subscription else f"{what} (Standard tier)"))
    counts += [(f"{alias}/{topic}", count, MOST_SQL_FILTERS, "SQL rules") for topic, count in sql.items()]
    counts += [
        (f"{alias}/{topic}", count, MOST_CORRELATION_FILTERS, "correlation rules")
        for topic, count in correlation.items()
    ]
    for place, count, most, what in counts:
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
                yield _line(where, PARTITIONED_DUPLICATES)
            else:
                text = "does not detect duplicates, because it is partitioned and would then take no batches"
                remedy = (
                    "make its consumers idempotent, or say `duplicate_detection: true` in topology.yaml if it is new"
                )
                yield f"{where}: {text}: {remedy}"
        if entity.settings.get("auto_delete_on_idle") is not None:
            yield _line(where, DELETES_ITSELF)
        if entity.settings.get("support_ordering") is False:
            yield _line(where, NO_SUPPORT_ORDERING)
        if need.is_target and entity.settings.get("forward_to"):
            yield _line(where, FORWARDED)


def _line(where: str, check: Check) -> str:
    return f"{where}: {check.meaning} {check.remedy[0].upper()}{check.remedy[1:]}."
