"""From when to when the taps at a target have looked: they cannot miss what was sent there before or after."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jobs.reconcile.evidence import TaskEvidence
from jobs.reconcile.settings import Settings

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
