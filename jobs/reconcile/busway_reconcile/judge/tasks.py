"""What the journals of a window show about each task: its sources, targets and taps, and when it was active."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from busway_reconcile.journal.hours import moment_of


@dataclass
class TaskActivity:
    """The activity of one task in a window, by its own records and by its taps."""

    task: str
    sources: set[tuple[str, str]] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    first: datetime | None = None
    last: datetime | None = None
    source_taps: set[str] = field(default_factory=set)
    target_taps: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    peeks: set[str] = field(default_factory=set)
    hands_over: bool = False
    """Whether it asked the host to send, through an output binding."""
    sent: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    first_sent: dict[str, datetime] = field(default_factory=dict)
    last_sent: dict[str, datetime] = field(default_factory=dict)
    first_seen: dict[str, datetime] = field(default_factory=dict)
    last_seen: dict[str, datetime] = field(default_factory=dict)

    @property
    def evidence(self) -> str:
        """The evidence that messages entered and arrived: the replicator's own journal, or taps as well."""
        return self._observers + ("; the target's answers to the host are not on record" if self.hands_over else "")

    @property
    def _observers(self) -> str:
        at_source, at_target = bool(self.source_taps), bool(self.target_taps)
        if at_source and at_target:
            return "taps at both sides"
        if at_target:
            return "replicator's own, and a tap at the target"
        if at_source:
            return "replicator's own, and a tap at the source"
        return "replicator's own"

    @property
    def taps(self) -> list[str]:
        """The names of all taps, in order."""
        at_targets = (tap for taps in self.target_taps.values() for tap in taps)
        return sorted({*self.source_taps, *self.peeks, *at_targets})


def activity_by_task(coverage: Iterable[Mapping[str, Any]]) -> dict[str, TaskActivity]:
    """
    Return the activity of each task from the rows of the table coverage.

    Units:   `first` and `last` are microseconds since 1970: Spark returns timestamps in the process's own time zone.
    """
    tasks: dict[str, TaskActivity] = {}
    for row in coverage:
        one = tasks.setdefault(row["task"], TaskActivity(row["task"]))
        first, last = moment_of(row["first"]), moment_of(row["last"])
        one.sources.add((row["src_site"], row["src_entity"]))
        if row["observer"] == "task":
            one.first = first if one.first is None else min(one.first, first)
            one.last = last if one.last is None else max(one.last, last)
            # A message that an instance only remembers to have sent has no target on record.
            if row["outcome"] == "sent" and row["target"] is not None:
                one.targets.add(row["target"])
                one.hands_over |= bool(row["handed_over"])
                one.sent[row["target"]] += row["n"]
                one.first_sent[row["target"]] = min(first, one.first_sent.get(row["target"], first))
                one.last_sent[row["target"]] = max(last, one.last_sent.get(row["target"], last))
        elif row["peek"]:
            one.peeks.add(row["tap"] or "")
        elif row["role"] == "source":
            one.source_taps.add(row["tap"] or "")
        elif row["target"] is not None:  # anybody may write to a journal
            one.target_taps[row["target"]].add(row["tap"] or "")
            one.first_seen[row["target"]] = min(first, one.first_seen.get(row["target"], first))
            one.last_seen[row["target"]] = max(last, one.last_seen.get(row["target"], last))
    return tasks


def tapped_sides(tasks: Mapping[str, TaskActivity]) -> list[tuple[str, str, str | None]]:
    """Return task, role and target (None for a source) of every side with a draining tap."""
    found: list[tuple[str, str, str | None]] = []
    for one in tasks.values():
        found += [(one.task, "target", target) for target in sorted(one.target_taps)]
        if one.source_taps:
            found.append((one.task, "source", None))
    return found


def shared_targets(tasks: Mapping[str, TaskActivity]) -> list[tuple[str, str, str]]:
    """
    Return task, target and other task where a tap sees the copies of two tasks of one site at the same target.

    The stamps of a copy have its site and number, but not its task.
    """
    return [
        (one.task, target, other.task)
        for one in tasks.values()
        for other in tasks.values()
        if other is not one and {site for site, _ in one.sources} & {site for site, _ in other.sources}
        for target in sorted(other.targets)
        if target in one.target_taps or (one.peeks and target in one.targets)
    ]


def sources_as_targets(tasks: Iterable[TaskActivity]) -> set[str]:
    """Return the source entities of *tasks*, written as targets are: applications may send there themselves."""
    return {f"{site}/{entity.split('/')[0]}".lower() for one in tasks for site, entity in one.sources}
