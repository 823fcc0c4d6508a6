"""The closed hours that no run has counted yet: what a run of every hour has to do."""

from contextlib import suppress
from datetime import datetime, timedelta

from busway_reconcile.journal.hours import SETTLE, hour_of, start_of
from busway_reconcile.read.previous_run import UnreadableSummary, read_summary
from busway_reconcile.settings import Window
from busway_reconcile.storage import Storage

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
    recent, runs = recent_hours(now), f"{out}/runs"
    known = [window for name in storage.folders(runs) if (window := Window.of_run(name)) is not None]
    starts = [recent.start if known else recent.end - _HOUR]
    for each in known:
        if each.end > recent.start:
            # An unreadable one is reported by the next run.
            with suppress(UnreadableSummary):
                summary = read_summary(storage, runs, each)
                # A run that was made while its last hours were open has not counted these.
                until = None if summary is None else start_of(hour_of(datetime.fromisoformat(summary.counted_until)))
                starts += [until] if until is not None and until <= recent.end else []
    first = max(starts)
    return [Window(first + nth * _HOUR, first + (nth + 1) * _HOUR) for nth in range((recent.end - first) // _HOUR)]
