"""The hours of a run that can be read, the end of the time that it counts, and the hours that are not counted yet."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

from busway_reconcile.journal.hours import SETTLE, hour_of, hours_between, is_closed, start_of
from busway_reconcile.journal.problems import Problem
from busway_reconcile.read.files import JournalFile
from busway_reconcile.read.previous_run import UnreadableSummary, read_summary
from busway_reconcile.settings import Run, Window
from busway_reconcile.storage import Storage


def closed_hours(run: Run) -> tuple[list[str], list[Problem]]:
    """Return the hours of the window that can be read, and a problem if that is not all of them."""
    hours = run.window.hours
    if run.settings.writers_stopped:
        # future_records() reports only records that are further ahead.
        return [hour for hour in hours if start_of(hour) <= run.now + run.settings.clock_tolerance], []
    still_open = [hour for hour in hours if not is_closed(hour, run.now)]
    if not still_open:
        return hours, []
    readable = start_of(still_open[-1]) + timedelta(hours=1) + SETTLE
    text = (
        f"still being written: {len(still_open)} of {len(hours)} hours, from this one on, are not counted; "
        f"run again after {readable:%Y-%m-%d %H:%M}"
    )
    return [hour for hour in hours if hour < still_open[0]], [Problem("hour-open", still_open[0], text)]


def future_hours(now: datetime) -> list[str]:
    """Return the hours of the next week, in which only instances write whose clocks are ahead."""
    return hours_between(start_of(hour_of(now + timedelta(hours=1))), now + timedelta(days=7))


def future_records(files: Iterable[JournalFile], run: Run) -> list[Problem]:
    """
    Return a problem for each task and instance with *files* of hours that have not begun.

    Either record of any message of the window may be in them, so all its hours are unreliable.
    """
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in files:
        if start_of(file.hour) > run.now + run.settings.clock_tolerance:
            found[file.task, file.name.rpartition("-")[0]].append(file.hour)
    return [
        Problem(
            "future-records",
            f"{task}, instance {instance}",
            f"wrote in hours that have not begun, {min(hours)} to {max(hours)}: its clock is ahead; not counted",
            task,
            hours=tuple(run.window.hours),
        )
        for (task, instance), hours in sorted(found.items())
    ]


def counted_until(run: Run, hours: list[str]) -> datetime:
    """Return the end of the time in which the messages of *hours* are counted."""
    end = start_of(hours[-1]) + timedelta(hours=1) if hours else run.window.start
    return min(end, run.now) if run.settings.writers_stopped else end


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
