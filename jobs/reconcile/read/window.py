"""The hours of a run that can be read, and the end of the time that it counts."""

from datetime import datetime, timedelta

from jobs.reconcile.journal.hours import SETTLE, is_closed, start_of
from jobs.reconcile.journal.problems import Problem
from jobs.reconcile.settings import Run


def closed_hours(run: Run) -> tuple[list[str], list[Problem]]:
    """Return the hours of the window that can be read, and a problem if that is not all of them."""
    hours = run.window.hours
    if run.settings.writers_stopped:
        return [hour for hour in hours if start_of(hour) <= run.now], []
    still_open = [hour for hour in hours if not is_closed(hour, run.now)]
    if not still_open:
        return hours, []
    readable = start_of(still_open[-1]) + timedelta(hours=1) + SETTLE
    text = (
        f"still being written: {len(still_open)} of {len(hours)} hours, from this one on, are not counted; "
        f"run again after {readable:%Y-%m-%d %H:%M}"
    )
    return [hour for hour in hours if hour < still_open[0]], [Problem("hour-open", still_open[0], text)]


def counted_until(run: Run, hours: list[str]) -> datetime:
    """Return the end of the time in which the messages of *hours* are counted."""
    end = start_of(hours[-1]) + timedelta(hours=1) if hours else run.window.start
    return min(end, run.now) if run.settings.writers_stopped else end
