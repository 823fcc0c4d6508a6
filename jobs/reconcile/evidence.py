"""What the journals of a window can prove: who watched, since when, and where a side is missing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.reconcile.inputs import Problem, hour_of, start_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLUSH = timedelta(minutes=5)
"""The two records of a message lie no farther apart than a batch may take."""


@dataclass
class TaskEvidence:
    """What is known of one task in a window."""

    task: str
    sources: set[tuple[str, str]] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    first: datetime | None = None
    last: datetime | None = None
    received: int = 0
    outcomes: int = 0
    source_taps: set[str] = field(default_factory=set)
    target_taps: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    peeks: set[str] = field(default_factory=set)
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    first_sent: dict[str, datetime] = field(default_factory=dict)
    last_sent: dict[str, datetime] = field(default_factory=dict)
    first_seen: dict[str, datetime] = field(default_factory=dict)
    last_seen: dict[str, datetime] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What proves that messages entered and arrived: the replicator's own journal, or taps as well."""
        at_source, at_target = bool(self.source_taps), bool(self.target_taps)
        if at_source and at_target:
            return "taps at both sides"
        if at_target:
            return "replicator's own, and a tap at the target"
        if at_source:
            return "replicator's own, and a tap at the source"
        return "replicator's own"


def gathered(coverage: Iterable[Mapping[str, Any]]) -> dict[str, TaskEvidence]:
    """
    Return the evidence of each task from the rows of the coverage tables.

    Units:   `first` and `last` are microseconds since 1970; a time that Spark hands over is one of this process's zone.
    """
    tasks: dict[str, TaskEvidence] = {}
    for row in coverage:
        one = tasks.setdefault(row["task"], TaskEvidence(row["task"]))
        first, last = _moment(row["first"]), _moment(row["last"])
        one.sources.add((row["src_site"], row["src_entity"]))
        if row["observer"] == "task":
            one.first = first if one.first is None else min(one.first, first)
            one.last = last if one.last is None else max(one.last, last)
            if row["outcome"] == "received":
                one.received += row["n"]
            else:
                one.outcomes += row["n"]
            if row["outcome"] == "sent":
                one.targets.add(row["target"])
                one.sent[row["target"]] += row["n"]
                one.first_sent[row["target"]] = min(first, one.first_sent.get(row["target"], first))
                one.last_sent[row["target"]] = max(last, one.last_sent.get(row["target"], last))
        elif row["peek"]:
            one.peeks.add(row["tap"] or "")
        elif row["role"] == "source":
            one.source_taps.add(row["tap"] or "")
        else:
            one.target_taps[row["target"]].add(row["tap"] or "")
            one.first_seen[row["target"]] = min(first, one.first_seen.get(row["target"], first))
            one.last_seen[row["target"]] = max(last, one.last_seen.get(row["target"], last))
    return tasks


def watched(tasks: Mapping[str, TaskEvidence]) -> list[tuple[str, str, str | None]]:
    """Return task, role and target (None for a source) of all that draining taps watch."""
    found: list[tuple[str, str, str | None]] = []
    for one in tasks.values():
        found += [(one.task, "target", target) for target in sorted(one.target_taps)]
        if one.source_taps:
            found.append((one.task, "source", None))
    return found


def sharing(tasks: Mapping[str, TaskEvidence]) -> list[tuple[str, str, str]]:
    """Return task, target and other task where a tap at the target sees copies of both, and of one site."""
    return [
        (one.task, target, other.task)
        for one in tasks.values()
        for other in tasks.values()
        if other is not one and {site for site, _ in one.sources} & {site for site, _ in other.sources}
        for target in sorted(other.targets)
        if target in one.target_taps or (one.peeks and target in one.targets)
    ]


def missing_sides(coverage: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """Return the hours in which a task journalled one side of its messages and not the other."""
    seen: dict[tuple[str, str], dict[str, list[datetime]]] = defaultdict(lambda: defaultdict(list))
    for row in coverage:
        if row["observer"] == "task":
            seen[row["task"], row["landed"]][row["role"]] += [_moment(row["first"]), _moment(row["last"])]
        elif row["role"] == "target":
            seen[row["task"], row["landed"]]["tap"] += [_moment(row["first"]), _moment(row["last"])]
    problems = []
    for (task, hour), sides in sorted(seen.items()):
        start, end = start_of(hour), start_of(hour) + timedelta(hours=1)
        if sides["source"] and not sides["target"] and min(sides["source"]) < end - _FLUSH:
            text = "it says what entered, and nothing of what became of it"
            problems.append(Problem("side-missing", f"{task}, {hour}", text, task, "target", (hour,)))
        if sides["target"] and not sides["source"] and max(sides["target"]) > start + _FLUSH:
            text = "it says what became of messages, and not that they entered"
            problems.append(Problem("side-missing", f"{task}, {hour}", text, task, "source", (hour,)))
        if sides["tap"] and not sides["source"] and not sides["target"] and max(sides["tap"]) > start + _FLUSH:
            neighbours = [hour_of(start - timedelta(hours=1)), hour_of(start + timedelta(hours=1))]
            if not any(seen.get((task, each), {}).get("source") for each in neighbours):
                text = "a tap saw copies of the task's messages, the task itself journalled nothing"
                problems.append(Problem("side-missing", f"{task}, {hour}", text, task, "source", (hour,)))
    return problems


def renamed(tasks: Mapping[str, TaskEvidence], before: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """
    Return the tasks that have another name since, as old name to new.

    That is assumed where one task ends before another one begins to take from the same entity, and was there before.
    Shape:   *before* has for each task of the run before `sources` (pairs) and `last` (ISO 8601).
    """
    ended: dict[str, tuple[set[tuple[str, str]], datetime]] = {}
    for name, told in before.items():
        if told["last"] is not None:
            ended[name] = {(site, entity) for site, entity in told["sources"]}, datetime.fromisoformat(told["last"])
    for name, one in tasks.items():
        if one.last is not None:
            ended[name] = one.sources, one.last
    found = {}
    for old, (sources, last) in sorted(ended.items()):
        successors = [
            new
            for new, one in sorted(tasks.items())
            if new != old and new not in before and one.first is not None and one.first > last and one.sources & sources
        ]
        if len(successors) == 1:
            found[old] = successors[0]
    return found


def still_renamed(names: Mapping[str, str], tasks: Iterable[str]) -> dict[str, str]:
    """Return those of *names*, old to new, whose old one is not back among *tasks*."""
    return {old: new for old, new in names.items() if old not in set(tasks)}


def gaps(problems: Iterable[Problem]) -> dict[tuple[str, str], set[str]]:
    """Return for each task and role the hours whose records cannot be relied on."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for each in problems:
        if each.task is not None and each.role is not None:
            found[each.task, each.role] |= set(each.hours)
    return {key: hours for key, hours in found.items() if hours}


def sources_as_targets(tasks: Iterable[TaskEvidence]) -> set[str]:
    """Return the entities that tasks take from, as targets are written: applications may send there themselves."""
    return {f"{site}/{entity.split('/')[0]}".lower() for one in tasks for site, entity in one.sources}


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
