"""
The hours of a run that can be read, those that no run has counted, and the result of the run before.

A run begins with the messages that the previous one left open.
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from busway_reconcile.journal import schema
from busway_reconcile.journal.hours import SETTLE, hour_of, hours_between, is_closed, start_of
from busway_reconcile.journal.problems import Problem
from busway_reconcile.read.files import JournalFile
from busway_reconcile.settings import Run, Window
from busway_reconcile.storage import Storage
from busway_reconcile.summary import Summary

LONGEST_DELAY = timedelta(days=1)
"""How late an hour is still reconciled by itself: the run of its day counts an older one."""

_HOUR = timedelta(hours=1)


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
    known = _windows(storage, runs)
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


class UnreadableSummary(Exception):
    """A summary.json that this job did not write; the message has what is wrong."""


class PreviousRun(NamedTuple):
    """The summary of the last run before this one, None for the first, with problems and notes about it."""

    summary: Summary | None
    problems: list[Problem]
    notes: list[str]


def find_previous_run(storage: Storage, run: Run) -> PreviousRun:
    """Return the run that ended last before *run* begins; of several, that of the longest window."""
    runs = f"{run.out}/runs"
    windows = _windows(storage, runs)
    before = [window for window in windows if window.end <= run.window.start]
    found, problems = None, []
    for each in sorted(before, key=lambda each: (each.end, each.end - each.start), reverse=True):
        try:
            found = read_summary(storage, runs, each)
        except UnreadableSummary as error:
            problems.append(Problem("unreadable-summary", f"{runs}/{each.run}/summary.json", f"{error}; not read"))
        if found is not None:
            break
    # A run that was made while its last hours were open has not counted these.
    if found is not None and datetime.fromisoformat(found.counted_until) < run.window.start:
        text = f"no run counted the hours from here to {run.window.start}"
        problems.append(Problem("not-reconciled", found.counted_until, text))
    after = [window for window in windows if window.start >= run.window.end]
    return PreviousRun(found, problems, _runs_to_repeat(storage, runs, after, run.window))


def _windows(storage: Storage, runs: str) -> list[Window]:
    return [window for name in storage.folders(runs) if (window := Window.of_run(name)) is not None]


def read_summary(storage: Storage, runs: str, window: Window) -> Summary | None:
    """Return the summary of the run of *window* in the folder *runs*, or None; raises UnreadableSummary."""
    path = f"{runs}/{window.run}/summary.json"
    if not storage.exists(path):
        return None
    try:
        return Summary.from_json(storage.read(path))
    except (ValueError, LookupError, TypeError) as error:
        raise UnreadableSummary(f"not a summary that this job wrote ({type(error).__name__})") from error


def _runs_to_repeat(storage: Storage, runs: str, after: Iterable[Window], window: Window) -> list[str]:
    notes = []
    for each in after:
        with suppress(UnreadableSummary):
            one = read_summary(storage, runs, each)
            if one is not None and one.previous_run == window.run:
                notes.append(f"run {each.run} started with the messages that this run left open: repeat it too")
    return notes


def read_open(spark: SparkSession, storage: Storage, run: Run, previous: Summary | None) -> DataFrame | None:
    """
    Return the records of the messages that *previous* left open, or None.

    Shape:   schema.COMPACTED, `known_since`, `doubted`, `found`, `refuted`.
    """
    path = "" if previous is None else f"{run.out}/runs/{previous.run}/open"
    if not path or not storage.exists(path):
        return None
    # An older version of the job may have written fewer fields.
    fields = schema.compacted().add("known_since", "string")
    for name in ("doubted", "found", "refuted"):
        fields = fields.add(name, "boolean")
    return spark.read.schema(fields).parquet(path)
