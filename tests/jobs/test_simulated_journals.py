"""The nightly job and its twin say the same about the journals of simulated histories."""

import itertools
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from busway_reconcile.reconciliation import reconcile
from busway_reconcile.settings import Settings, Window
from tests.jobs.journals import Record, write
from tests.jobs.results import table
from tests.simulation.history import Plan, run
from tests.simulation.judgement import Evidence, disagreements
from tests.simulation.kept import KEPT
from tests.simulation.site import BEGIN

pytestmark = pytest.mark.slow

_HISTORIES = 24
_HOURS = 3


def proofs() -> list[Evidence]:
    found: list[Evidence] = []
    for number, plan in enumerate(itertools.chain(itertools.starmap(Plan, KEPT), map(Plan, itertools.count()))):
        history = run(plan, number)
        if history.evidence is not None and history.seconds < (_HOURS - 1) * 3600:
            found.append(history.evidence)
        if len(found) == _HISTORIES:
            break
    return found


def test_job_names_exactly_what_a_history_has_lost(spark: SparkSession, tmp_path: Path) -> None:
    histories = proofs()
    records: list[tuple[datetime, Record]] = []
    for history in histories:
        for line in history.lines.splitlines():
            record = json.loads(line)
            records.append((datetime.fromtimestamp(record["journal_time"] / 1e6, UTC), record))
    write(tmp_path / "journal", records)
    start = BEGIN.replace(minute=0) - timedelta(hours=1)
    result = reconcile(
        spark,
        str(tmp_path / "journal"),
        str(tmp_path / "out"),
        window=Window(start, start + timedelta(hours=_HOURS + 1)),
        now=start + timedelta(days=2),
        settings=Settings(grace=timedelta(hours=1)),
    )
    rows = [*table(result, "findings"), *table(result, "explained")]
    said: dict[int, list[tuple[str, str]]] = {history.number: [] for history in histories}
    for row in rows:
        said[int(row["task"].removeprefix("h").partition("-")[0])].append((str(row["message_id"]), row["verdict"]))
    assert any(history.lost for history in histories)
    assert [text for history in histories for text in disagreements(history, said[history.number])] == []
