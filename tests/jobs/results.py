"""The results of a run, read without Spark."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
from pyspark.sql import SparkSession

from busway_reconcile.compact.hours import Hour
from busway_reconcile.compact.inputs import compact_inputs
from busway_reconcile.journal.problems import Problem
from busway_reconcile.read.runs import closed_hours, find_previous_run
from busway_reconcile.reconciliation import Result, reconcile
from busway_reconcile.settings import Run, Settings, Window
from busway_reconcile.storage import Storage
from tests.jobs.journals import START

Verdicts = dict[tuple[str, int | None], str]
"""By task and sequence number; an unreadable message has no number."""


def run(
    spark: SparkSession,
    folder: Path,
    *,
    start: datetime = START,
    hours: int = 4,
    now: datetime | None = None,
    settings: Settings | None = None,
) -> Result:
    """Reconcile *folder*/journal, by default two days later and with an hour of grace."""
    return reconcile(
        spark,
        str(folder / "journal"),
        str(folder / "out"),
        window=Window(start, start + timedelta(hours=hours)),
        now=now or start + timedelta(days=2),
        settings=settings or Settings(grace=timedelta(hours=1)),
    )


class Inputs(NamedTuple):
    """The compacted hours of a run, and the problems of its inputs and of the previous run."""

    hours: dict[str, Hour]
    problems: list[Problem]
    problems_of_previous: list[Problem]


def inputs(
    spark: SparkSession, folder: Path, *, start: datetime = START, hours: int = 4, settings: Settings | None = None
) -> Inputs:
    """Return the inputs of a run without judging them, which takes much longer."""
    storage = Storage(spark)
    journal, out = (storage.absolute(str(folder / name)) for name in ("journal", "out"))
    window = Window(start, start + timedelta(hours=hours))
    one = Run(journal, out, window, start + timedelta(days=2), settings or Settings())
    closed, problems = closed_hours(one)
    found = compact_inputs(spark, storage, one, closed)
    return Inputs(found.hours, [*problems, *found.problems], find_previous_run(storage, one).problems)


def table(result: Result, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table of *result*."""
    if name not in result.tables:
        return []
    found = duckdb.execute(f"from read_parquet('{result.tables[name].removeprefix('file:')}/*.parquet')")
    columns = [column[0] for column in found.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def verdicts(result: Result) -> Verdicts:
    """Return the verdict of every message that was judged by itself and did not simply arrive."""
    rows = [*table(result, "findings"), *table(result, "explained")]
    return {(row["task"], row["src_seq"]): row["verdict"] for row in rows}


def kinds(result: Result) -> list[str]:
    """Return the kinds of problems in *result*, each once."""
    return sorted({problem["kind"] for problem in result.summary.problems})
