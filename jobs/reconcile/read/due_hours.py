"""The closed hours that no run has counted yet: what a run of every hour has to do."""

from datetime import datetime, timedelta

from jobs.reconcile.journal.hours import SETTLE, hour_of, start_of
from jobs.reconcile.settings import Window
from jobs.reconcile.storage import Storage
from jobs.reconcile.summary import Summary

LONGEST_DELAY = timedelta(days=1)
"""How late an hour is still reconciled by itself: the run of its day counts an older one."""

_HOUR = timedelta(hours=1)


def recent_hours(now: datetime) -> Window:
    """Return the closed hours of the last day."""
    end = start_of(hour_of(now - SETTLE))
    return Window(end - LONGEST_DELAY, end)


def due_hours(storage: Storage, out: str, now: datetime) -> list[Window]:
    """
    Return the closed hours after the last one that a run below *out* has counted, in order.

    Without an earlier run, only the last closed hour is due.
    """
    recent = recent_hours(now)
    counted = [each for each in _ends(storage, f"{out}/runs") if each <= recent.end]
    start = max([recent.start, *counted]) if counted else recent.end - _HOUR
    return [Window(start + nth * _HOUR, start + (nth + 1) * _HOUR) for nth in range((recent.end - start) // _HOUR)]


def _ends(storage: Storage, runs: str) -> list[datetime]:
    """Return the full hour until which each run has counted."""
    found = []
    for name in storage.folders(runs):
        path = f"{runs}/{name}/summary.json"
        if name.startswith(".") or not storage.exists(path):
            continue
        try:
            until = datetime.fromisoformat(Summary.from_json(storage.read(path)).counted_until)
        except (ValueError, LookupError, TypeError):
            continue  # the next run reports it
        found.append(start_of(hour_of(until)))
    return found
