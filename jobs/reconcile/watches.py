"""From when to when the taps at a target have looked: they cannot miss what was sent there before or after."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs.reconcile.evidence import TaskEvidence
from jobs.reconcile.inputs import Problem
from jobs.reconcile.run import Run, latest_name
from jobs.reconcile.settings import Settings
from jobs.reconcile.summary import Summary

TAIL = 20
"""Sent messages that a tap must have passed over before it is named as silent."""


@dataclass(frozen=True)
class Watch:
    """The draining taps at one target: copies of what was sent there between *since* and *until* have come by them."""

    taps: tuple[str, ...]
    since: datetime
    last: datetime
    """When the last of their records was written."""
    until: datetime | None = None
    """None where they were there to the end of the window."""
    is_new: bool = False
    """The task had sent there before they saw anything, and no earlier run knows of them."""
    is_absent: bool = False
    """Of many messages they have told nothing in this window: those are taken on the replicator's own word."""

    def told(self) -> dict[str, Any]:
        """Return what the next run has to know."""
        return {"taps": self.taps, "since": self.since.isoformat(), "last": self.last.isoformat()}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Watch":
        """Return the watch that an earlier run has told of."""
        since, last = (datetime.fromisoformat(told[name]) for name in ("since", "last"))
        return cls(tuple(told["taps"]), since, last)


def all_watches(
    run: Run, tasks: Mapping[str, TaskEvidence], previous: Summary | None, end: datetime
) -> dict[str, dict[str, Watch]]:
    """
    Return by task and target the watches of a run, and name those that told nothing.

    The *tasks* learn of taps that have yet to tell of the few messages that were sent to them.
    """
    before: dict[str, dict[str, Watch]] = defaultdict(dict)
    for task, by_target in previous.watches.items() if previous else ():
        before[latest_name(task, run.renamed)] |= {target: Watch.of(told) for target, told in by_target.items()}
    found: dict[str, dict[str, Watch]] = defaultdict(dict)
    for task in sorted({*before, *tasks}):
        one = tasks.get(task, TaskEvidence(task))
        for target, watch in watches(one, before[task], end, run.settings).items():
            found[task][target] = watch
            if watch.is_absent:
                text = (
                    f"its tap at {target} wrote nothing in this window, and last at {watch.last:%Y-%m-%d %H:%M:%S}; "
                    f"{one.sent[target]} were sent there, taken on the replicator's own word"
                )
                run.problems.append(Problem("silent-tap", task, text))
            elif one.sent.get(target):
                one.target_taps[target] |= set(watch.taps)
            if watch.is_new:
                run.notes.append(
                    f"{task}: its tap at {target} is new; what was sent there before {watch.since:%Y-%m-%d %H:%M:%S} "
                    "and it has not seen is undecided"
                )
    return dict(found)


def watches(one: TaskEvidence, before: Mapping[str, Watch], end: datetime, settings: Settings) -> dict[str, Watch]:
    """Return the watch at each target of a task; *before* are those of the run before, *end* that of the window."""
    found = {target: _seen(one, target, before.get(target), settings) for target in one.target_taps}
    for target, known in before.items():
        # A tap that was taken away looks like one that is dead, until what it might still tell would come too late.
        if target not in found and end - known.last <= settings.open_for:
            first = one.first_sent.get(target)
            is_absent = first is not None and first <= end - settings.grace and one.sent[target] >= TAIL
            until = known.last - settings.clock_tolerance
            found[target] = Watch(known.taps, known.since, known.last, until, is_absent=is_absent)
    return found


def _seen(one: TaskEvidence, target: str, before: Watch | None, settings: Settings) -> Watch:
    taps = tuple(sorted(one.target_taps[target]))
    first, last = one.first_seen[target], one.last_seen[target]
    first_sent, last_sent = one.first_sent.get(target, first), one.last_sent.get(target, last)
    # Neither the clocks nor how far a tap had come when it ended are known to the second.
    tolerance = settings.clock_tolerance
    until = None if last_sent - last <= tolerance else last - tolerance
    if before is not None:
        return Watch(taps, before.since, last, until)
    if first - first_sent <= tolerance:
        return Watch(taps, min(first, first_sent), last, until)
    return Watch(taps, first + tolerance, last, until, is_new=True)
