"""The result of the previous run: its summary, and the messages that it left open."""

from datetime import datetime, timedelta
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from jobs.reconcile.journal import schema
from jobs.reconcile.journal.problems import Problem
from jobs.reconcile.settings import Run
from jobs.reconcile.storage import Storage
from jobs.reconcile.summary import Summary


class PreviousRun(NamedTuple):
    """The summary of the last run before this one, None for the first, with problems and notes about it."""

    summary: Summary | None
    problems: list[Problem]
    notes: list[str]


def find_previous_run(storage: Storage, run: Run) -> PreviousRun:
    """Return the run that ended last before *run* begins."""
    found, problems, notes = None, [], []
    for name in storage.folders(f"{run.out}/runs"):
        path = f"{run.out}/runs/{name}/summary.json"
        if name.startswith(".") or not storage.exists(path):
            continue
        try:
            one = Summary.from_json(storage.read(path))
        except (ValueError, LookupError, TypeError) as error:
            text = f"not a summary that this job wrote ({type(error).__name__}); not read"
            problems.append(Problem("unreadable-summary", path, text))
            continue
        if one.previous_run == run.window.run:
            notes.append(f"run {one.run} started with the messages that this run left open: repeat it too")
        ends = datetime.fromisoformat(one.end)
        if ends <= run.window.start and (found is None or ends > datetime.fromisoformat(found.end)):
            found = one
    # A run that was made while its last hours were open has not counted these.
    if found is not None and datetime.fromisoformat(found.counted_until) <= run.window.start - timedelta(hours=1):
        text = f"no run counted the hours from here to {run.window.start}"
        problems.append(Problem("not-reconciled", found.counted_until, text))
    return PreviousRun(found, problems, notes)


def read_open(spark: SparkSession, storage: Storage, run: Run, previous: Summary | None) -> DataFrame | None:
    """
    Return the records of the messages that *previous* left open, or None.

    Shape:   schema.COMPACTED, `known_since`, `doubted`.
    """
    path = "" if previous is None else f"{run.out}/runs/{previous.run}/open"
    if not path or not storage.exists(path):
        return None
    # An older version of the job may have written fewer fields.
    fields = schema.compacted().add("known_since", "string").add("doubted", "boolean")
    return spark.read.schema(fields).parquet(path)
