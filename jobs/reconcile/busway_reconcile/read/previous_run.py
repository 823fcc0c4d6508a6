"""The result of the previous run: its summary, and the messages that it left open."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from busway_reconcile.journal import schema
from busway_reconcile.journal.problems import Problem
from busway_reconcile.settings import Run, Window
from busway_reconcile.storage import Storage
from busway_reconcile.summary import Summary


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
    windows = [window for name in storage.folders(runs) if (window := Window.of_run(name)) is not None]
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
