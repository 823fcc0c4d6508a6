"""What a run found, in one object: for the exit code, the page, the command, and the run of the next night."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from jobs.reconcile.inputs import EMPTY, Problem
from jobs.reconcile.verdicts import FINDINGS, UNDECIDED

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}

CLEAN, FOUND, COULD_NOT_DECIDE = 0, 1, 2


@dataclass
class TaskSummary:
    """
    The figures of one task.

    entered + carried + reopened = the sum of verdicts without orphans: what entered in this window, what earlier runs
    left open, and what they had decided and a later copy brought up again. Units: lags in milliseconds.
    """

    task: str
    sources: list[tuple[str, str]]
    targets: list[str]
    evidence: str
    taps: list[str]
    first: str | None
    last: str | None
    verdicts: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    entered: int = 0
    carried: int = 0
    reopened: int = 0
    retries: int = 0
    lag_milliseconds: dict[str, float] = field(default_factory=dict)
    lag_by_hour: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Summary:
    """The result of a run; to_json() is the file that it writes last."""

    run: str
    start: str
    end: str
    counted_until: str
    exit_code: int
    verdict: str
    sentence: str
    settings: dict[str, Any]
    tasks: list[TaskSummary]
    problems: list[dict[str, Any]]
    notes: list[str]
    inputs: dict[str, int]
    previous_run: str | None
    renamed: dict[str, str]
    tables: dict[str, str]
    watches: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """By task and target, what the next run has to know of the taps there."""
    version: int = 1

    def to_json(self) -> str:
        """Return the summary as JSON, equal for equal results."""
        return json.dumps(asdict(self), indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Summary":
        """Return what to_json() was made of."""
        told = json.loads(text)
        told["tasks"] = [
            TaskSummary(**{**each, "sources": [(site, entity) for site, entity in each["sources"]]})
            for each in told["tasks"]
        ]
        return cls(**told)

    @property
    def counts(self) -> dict[str, int]:
        """The messages of all tasks by verdict."""
        return added(each.verdicts for each in self.tasks)


def concluded(tasks: list[TaskSummary], problems: list[Problem]) -> tuple[int, str, str]:
    """Return the exit code, the verdict in a word and in a sentence."""
    verdicts = added(each.verdicts for each in tasks)
    found = {kind: verdicts[kind] for kind in FINDINGS if verdicts.get(kind)}
    undecided = verdicts.get(UNDECIDED, 0)
    messages = sum(verdicts.values()) - verdicts.get("orphan", 0)
    doubts = []
    # An empty file makes what is lacking undecided; where nothing is, there was nothing in it.
    if grave := [each for each in problems if each.kind != EMPTY]:
        doubts.append(f"{len(grave)} {'problem' if len(grave) == 1 else 'problems'} with the evidence")
    if undecided:
        doubts.append(f"{undecided} messages undecided")
    if not tasks and not doubts:
        return COULD_NOT_DECIDE, "could not decide", "No journal has a record of these hours."
    but = f"; {' and '.join(doubts)}" if doubts else ""
    if found:
        named = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in found.items())
        return FOUND, "findings", f"{messages} messages: {named}{but}."
    if doubts:
        return COULD_NOT_DECIDE, "could not decide", f"{messages} messages, none found at fault{but}."
    flying = verdicts.get("in_flight", 0)
    return CLEAN, "clean", f"{messages} messages, all accounted for{f', {flying} still in flight' if flying else ''}."


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of several counts by name."""
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def percentiles(classes: Mapping[int, int], milliseconds: Callable[[int], float]) -> dict[str, float]:
    """Return the usual percentiles of counts by lag class; nothing for nothing."""
    total = sum(classes.values())
    if not total:
        return {}
    found, passed = {}, 0
    left = dict(PERCENTILES)
    for each in sorted(classes):
        passed += classes[each]
        for name, share in list(left.items()):
            if passed >= share * total:
                found[name] = round(milliseconds(each), 1)
                del left[name]
    return found
