"""What a run has written, read without Spark."""

from datetime import datetime, timedelta
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from jobs.reconcile.compaction import Hour
from jobs.reconcile.reconciliation import Result, reconcile
from jobs.reconcile.run import Run
from jobs.reconcile.settings import Settings, Window
from tests.jobs.journals import START

Verdicts = dict[tuple[str, int | None], str]
"""By task and sequence number, which an unreadable message has not."""


def run(
    spark: SparkSession,
    folder: Path,
    *,
    start: datetime = START,
    hours: int = 4,
    now: datetime | None = None,
    settings: Settings | None = None,
) -> Result:
    """Reconcile *folder*/journal with an hour of grace, two days later unless *now* or *settings* say otherwise."""
    return reconcile(
        spark,
        str(folder / "journal"),
        str(folder / "out"),
        window=Window(start, start + timedelta(hours=hours)),
        now=now or start + timedelta(days=2),
        settings=settings or Settings(grace=timedelta(hours=1)),
    )


def inputs(
    spark: SparkSession, folder: Path, *, start: datetime = START, hours: int = 4, settings: Settings | None = None
) -> tuple[Run, dict[str, Hour]]:
    """Return what a run reads, without what costs time: to judge it."""
    window = Window(start, start + timedelta(hours=hours))
    journal, out = str(folder / "journal"), str(folder / "out")
    one = Run(spark, journal, out, window, start + timedelta(days=2), settings=settings or Settings())
    return one, one.inputs(one.closed_hours())


def table(result: Result, name: str) -> list[dict]:
    """Return the rows of a table of *result*."""
    if name not in result.tables:
        return []
    found = duckdb.execute(f"from read_parquet('{result.tables[name].removeprefix('file:')}/*.parquet')")
    columns = [column[0] for column in found.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def verdicts(result: Result) -> Verdicts:
    """Return the verdict of every message that did not simply arrive."""
    rows = [*table(result, "findings"), *table(result, "explained")]
    return {(row["task"], row["src_seq"]): row["verdict"] for row in rows}


def kinds(result: Result) -> list[str]:
    """Return the kinds of problems that *result* names, each once."""
    return sorted({each["kind"] for each in result.summary.problems})
