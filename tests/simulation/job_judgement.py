"""What the nightly job itself says on Spark about the journals of many histories; its twin judges all of them."""

import json
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from busway_reconcile.reconciliation import reconcile
from busway_reconcile.session import QUICK_START, local_session
from busway_reconcile.settings import Settings, Window
from tests.jobs.journals import Record, write
from tests.jobs.results import table
from tests.simulation.judgement import SHORT_SECONDS, Evidence, Verdicts, disagreements
from tests.simulation.site import BEGIN

_HOURS = 2 + round(SHORT_SECONDS / 3600)
"""Those of the window: one begins before the history, and the last one is not full."""


def judged_by_job(spark: SparkSession, histories: Sequence[Evidence]) -> Verdicts:
    """
    Return the verdicts of each history, none of which may take longer than SHORT_SECONDS.

    Those in whose journals it finds a problem are left out: of a task without any outcome it decides nothing.
    """
    records: list[tuple[datetime, Record]] = []
    for history in histories:
        for line in history.lines.splitlines():
            record = json.loads(line)
            records.append((datetime.fromtimestamp(record["journal_time"] / 1e6, UTC), record))
    start = BEGIN.replace(minute=0) - timedelta(hours=1)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "journal", records)
        result = reconcile(
            spark,
            f"{folder}/journal",
            f"{folder}/out",
            window=Window(start, start + timedelta(hours=_HOURS)),
            now=start + timedelta(days=2),
            settings=Settings(grace=timedelta(hours=1)),
        )
        rows = [*table(result, "findings"), *table(result, "explained")]
    doubted = {_number(str(problem["task"])) for problem in result.summary.problems}
    found: Verdicts = {history.number: [] for history in histories if history.number not in doubted}
    for row in rows:
        if (number := _number(row["task"])) in found:
            found[number].append((str(row["message_id"]), row["verdict"]))
    return found


def judged_wrongly(histories: Sequence[Evidence]) -> dict[int, tuple[str, ...]]:
    """Return what the job says wrongly of histories, by their numbers; Spark runs on this machine."""
    with tempfile.TemporaryDirectory() as scratch:
        spark = local_session(memory="1g", scratch=Path(scratch), java_options=QUICK_START)
        try:
            said = judged_by_job(spark, histories)
        finally:
            spark.stop()
    wrong = {
        each.number: tuple(f"on Spark, {text}" for text in disagreements(each, said[each.number]))
        for each in histories
        if each.number in said
    }
    return {number: texts for number, texts in wrong.items() if texts}


def _number(task: str) -> int:
    return int(task.removeprefix("h").partition("-")[0])
