"""Runs of hours: what they find, and what they leave for the run of their day."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.judge.ordering import ARRIVAL, first_position, may_be_later, out_of_order
from busway_reconcile.judge.verdicts import FINDINGS
from busway_reconcile.read.runs import due_hours
from busway_reconcile.settings import Window
from busway_reconcile.storage import Storage
from busway_reconcile.summary import Summary
from tests.jobs.journals import HOUR, PLAIN_KINDS, SECOND, START, TASK, Journals, planted
from tests.jobs.results import Verdicts, run, table, verdicts

HOURS = 3


def write_at_the_edge(folder: Path, edge: datetime) -> Verdicts:
    """
    Write messages of the first seconds of an hour, some by an instance whose clock is two seconds behind.

    Its records of the first messages are in the hour before.
    """
    slow = Journals(task="edge", entity="edge", target="east/edge", instance="wn8-slow")
    right = Journals(task="edge", entity="edge", target="east/edge", instance="wn9-1")

    def carry(journals: Journals, seq: int, enqueued: float, at: float, key: str | None = None) -> None:
        behind = 2 * SECOND if journals is slow else 0 * SECOND
        written = edge + at * SECOND - behind
        journals.carried(seq, edge + enqueued * SECOND, written, after=SECOND / 10, order_key=key)

    carry(right, 1, -600, -599)
    # Once by each clock: two copies.
    carry(slow, 10, 0.2, 0.5)
    carry(right, 10, 0.2, 5)
    # By one clock, in two hours, in the wrong order.
    carry(slow, 21, 0.4, 1, "s")
    carry(slow, 20, 0.3, 2.5, "s")
    # In the order of one clock, and of the other.
    for seq in range(30, 60):
        carry(slow if seq % 2 else right, seq, seq / 10, seq / 10 + 1)
    carry(right, 99, 1800, 1801)
    slow.write(folder, name="wn8")
    right.write(folder, name="wn9")
    return {("edge", 10): "duplicated", ("edge", 20): "out_of_order"}


@pytest.mark.slow
def test_the_run_of_a_day_gives_the_same_verdicts_over_reconciled_hours(spark: SparkSession, tmp_path: Path) -> None:
    hourly, nightly = tmp_path / "hourly", tmp_path / "nightly"
    journals, plan = planted([*PLAIN_KINDS, *["delivered"] * 10], taps=True, hours=HOURS)
    for folder in (hourly, nightly):
        journals.write(folder / "journal")
        edge = write_at_the_edge(folder / "journal", START + HOUR)
    results = [run(spark, hourly, start=START + hour * HOUR, hours=1) for hour in range(HOURS)]
    before = {path: path.stat().st_mtime_ns for path in (hourly / "out" / "compacted").rglob("*") if path.is_file()}
    over_hours, over_files = (run(spark, folder, hours=HOURS) for folder in (hourly, nightly))
    # It compacts no hour again.
    assert before == {
        path: path.stat().st_mtime_ns for path in (hourly / "out" / "compacted").rglob("*") if path.is_file()
    }
    assert verdicts(over_hours) == verdicts(over_files)
    assert plain(over_hours.summary) == plain(over_files.summary)
    assert table(over_hours, "findings") == table(over_files, "findings")
    found = verdicts(over_hours)
    assert {key: found[key] for key in edge} == edge
    assert {key for key in found if key[0] == "edge"} == {*edge}
    # Of a message that was withheld as it should be, only the number is in the results.
    counted = ("delivered", "filtered", "rejected")
    wrong = {(TASK, seq): verdict for seq, verdict in plan.items() if verdict not in counted}
    assert {key: verdict for key, verdict in found.items() if key[0] == TASK} == wrong
    # A missing message stays one in each later hour, but it is new only in one of them.
    findings = {key for result in results for key, verdict in verdicts(result).items() if verdict in FINDINGS}
    new = sum(sum(task.new.values()) for result in results for task in result.summary.tasks)
    assert new == len(findings)
    assert any(
        task.new != {kind: n for kind, n in task.verdicts.items() if kind in FINDINGS}
        for task in results[-1].summary.tasks
    )
    # The hours find the same, at the latest when the grace period is over.
    by_hour = {key: verdict for result in results for key, verdict in verdicts(result).items()}
    assert {key: by_hour.get(key) for key in edge} == edge
    assert {key for key, verdict in wrong.items() if by_hour.get(key) != verdict} == set()


def plain(summary: Summary) -> list[dict[str, object]]:
    """Return the figures of the tasks, which must not depend on the runs of hours."""
    return [{**vars(task), "lag_by_hour": None, "new": None} for task in summary.tasks]


def test_the_hours_that_no_run_has_counted_are_due(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(spark)
    now = START + timedelta(hours=5, minutes=20)

    def due(moment: datetime) -> list[int]:
        return [round((hour.start - START) / HOUR) for hour in due_hours(storage, str(tmp_path), moment)]

    assert due(now) == [4], "without a run, only the last closed hour"
    assert due(START + timedelta(hours=5, minutes=5)) == [3], "an hour is closed ten minutes after its end"
    write_summary(tmp_path, Window(START, START + HOUR))
    assert due(now) == [1, 2, 3, 4]
    write_summary(tmp_path, Window(START + 2 * HOUR, START + 4 * HOUR), counted=START + 3 * HOUR)
    assert due(now) == [3, 4], "an hour that was open when its run read it is due"
    write_summary(tmp_path, Window(START + 3 * HOUR, START + 5 * HOUR))
    assert due(now) == []
    assert due(START + timedelta(days=3, minutes=10)) == list(range(48, 72)), "older ones are left to their day"
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "summary.json").write_text("{}")
    assert due(now) == []


def write_summary(out: Path, window: Window, counted: datetime | None = None) -> None:
    folder = out / "runs" / window.run
    folder.mkdir(parents=True)
    until = (counted or window.end).isoformat()
    summary = Summary(
        run=window.run, start=window.start.isoformat(), end=window.end.isoformat(), counted_until=until, exit_code=0,
        verdict="clean", sentence="", settings={}, tasks=[], problems=[], notes=[], inputs={}, previous_run=None,
        renamed={}, tables={},
    )  # fmt: skip
    (folder / "summary.json").write_text(summary.to_json())


@pytest.mark.slow
def test_only_possible_later_messages_are_evidence_of_a_wrong_order(spark: SparkSession) -> None:
    nth, view = F.floor(F.col("id") / 600), ["session", "src_seq", "major", "minor"]
    enqueued = nth * 20_000_000 + F.floor(F.rand(1) * 30_000_000)
    arrivals = (
        spark.range(30_000)
        .select(
            (F.col("id") % 600).alias("session"),
            F.lit(1).cast("bigint").alias("stream"),
            # Some entities are deleted and created: their numbers begin again.
            F.when(F.rand(2) < 0.1, F.floor(F.rand(3) * 30)).otherwise(nth + F.floor(F.rand(4) * 4)).alias("src_seq"),
            F.when(F.rand(5) > 0.05, enqueued).alias("enqueued"),
            (nth * 20_000_000 + F.floor(F.rand(6) * 150_000_000)).alias("major"),
            F.floor(F.rand(7) * 3).alias("minor"),
            F.when(F.rand(8) < 0.8, F.floor(F.rand(9) * 3)).alias("clock"),
            (F.rand(10) < 0.08).alias("judged"),
        )
        .localCheckpoint()
    )
    judged, others = arrivals.where("judged").drop("judged"), arrivals.where("not judged").drop("judged")
    sessions = judged.groupBy("session").agg(*first_position("src_seq", F.col("enqueued")))
    later = others.join(sessions, "session").where(may_be_later("src_seq", F.col("enqueued"))).select(*ARRIVAL)

    def behind(evidence: DataFrame) -> set[Row]:
        found = out_of_order(judged.unionByName(evidence)).select(*view)
        return {*found.join(judged.select(*view).distinct(), view, "left_semi").collect()}

    expected = behind(others)
    assert expected
    assert behind(later) == expected
    assert later.count() < others.count()
