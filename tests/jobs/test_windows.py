"""Consecutive runs: one decides what the previous one left open, and a late copy reopens what was decided."""

import shutil
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from busway_reconcile.journal.address import WrongJournal
from busway_reconcile.judge.tasks import still_renamed
from busway_reconcile.reconciliation import Result, conclude
from busway_reconcile.settings import Settings, Window
from busway_reconcile.summary import TaskSummary
from tests.jobs.journals import HOUR, MINUTE, START, TASK, Journals
from tests.jobs.results import Verdicts, inputs, kinds, run, table, verdicts

pytestmark = pytest.mark.slow

SECOND = START + 2 * HOUR
PARTITIONED = (200 << 48) + 41


def both(spark: SparkSession, folder: Path) -> tuple[Result, Result]:
    return (
        run(spark, folder, hours=2),
        run(spark, folder, start=SECOND, hours=2),
    )


def drop_a_field(table: Path) -> None:
    """Write *table* as an older version of the job, which had fewer fields."""
    rows = duckdb.read_parquet(f"{table}/*.parquet").project("* exclude (joined)").to_arrow_table()
    shutil.rmtree(table)
    table.mkdir()
    duckdb.from_arrow(rows).write_parquet(f"{table}/part-0.parquet")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("summary.json")}


def of(result: Result, task: str) -> TaskSummary:
    return next(each for each in result.summary.tasks if each.task == task)


def of_task(task: str, entity: str, instance: str = "wn1-1") -> Journals:
    return Journals(task=task, entity=entity, target=f"east/{entity}", instance=instance)


def reject_an_unreadable_one(journals: Journals) -> None:
    """Add an unreadable message whose rejection could not be sent at first."""
    for minute, outcome in ((10, "retry"), (20, "rejected")):
        at = START + minute * MINUTE
        journals.received(0, at, at, src_seq=None, enqueued_time=None)
        journals.outcome(0, at, outcome, src_seq=None)


def rename(folder: Path) -> None:
    """Write a task that has another name in the second window, and a message that was in flight between them."""
    edge = SECOND - 2 * MINUTE
    old, new = of_task("orders-old", "renamed"), of_task("orders-new", "renamed", "wn2-1")
    old.steady(1, START, count=40, hours=2)
    old.received(501, edge, edge)
    new.carried(501, edge, SECOND + MINUTE, attempt=2)
    new.steady(1001, SECOND, count=40, hours=2)
    old.write(folder / "journal")
    new.write(folder / "journal", name="wn2")


def create_again(folder: Path) -> None:
    """Write a task whose source is deleted and created again after an hour, and once more within an hour."""
    journals = of_task("created-again", "again")
    journals.steady(1, START, hours=1, order_key="s", count=40)
    journals.steady(1, START + timedelta(hours=1), hours=1, order_key="s", count=40)
    for nth, (seq, seconds) in enumerate([(1, 0), (3, 2), (2, 1), (4, 3)]):
        enqueued = SECOND - timedelta(seconds=20 - seconds)
        journals.carried(seq, enqueued, SECOND - timedelta(seconds=10 - nth), order_key="s")
    journals.write(folder / "journal")


def move_sessions(folder: Path) -> None:
    """Write a task whose sessions move between instances with clocks that are seconds apart."""
    first, second = of_task("moved", "moved"), of_task("moved", "moved", "wn2-1")
    at = SECOND + 20 * MINUTE
    for journals, seq, enqueued, written, key in (
        # In order, though the clocks differ; in the last case they are in two hours.
        (first, 1, 0, 5, "moves"), (second, 2, 1, 2, "moves"),
        (second, 3, 2390, 2401, "moves"), (first, 4, 2391, 2399, "moves"),
        # Out of order by the instance's own clock, by more than clocks differ, and by that in two hours.
        (first, 12, 0, 1, "own"), (second, 11, 0, 2, "own"), (first, 10, 0, 3, "own"),
        (first, 22, 0, 1, "other"), (second, 21, 0, 90, "other"),
        (first, 32, 0, 1, "hours"), (second, 31, 0, 2460, "hours"),
    ):  # fmt: skip
        when = at + timedelta(seconds=written)
        journals.received(seq, at + timedelta(seconds=enqueued, milliseconds=seq), when, order_key=key)
        journals.outcome(seq, when)
    first.write(folder / "journal")
    second.write(folder / "journal", name="wn2")


def hold_over_the_hour(folder: Path) -> None:
    """Write a task that holds one message from one hour into the next and does nothing else."""
    held = of_task("held", "held")
    held.received(1, START + 53 * MINUTE, START + 53 * MINUTE)
    held.outcome(1, START + 66 * MINUTE)
    held.write(folder / "journal")


def number_as_partitions_do(folder: Path) -> None:
    """Write a task whose source has its partition in the upper bits of its numbers, with one lost message."""
    partitioned = of_task("partitioned", "partitioned")
    partitioned.steady(PARTITIONED - 40, START, count=40, hours=2)
    partitioned.received(PARTITIONED, SECOND - 5 * MINUTE, SECOND - 5 * MINUTE)
    partitioned.write(folder / "journal")


def read_a_hub_again(folder: Path) -> None:
    """Write a task that reads a quiet hub from the beginning, after another task did."""
    east, lake = of_task("to-east", "hub"), of_task("to-lake", "hub", "wn2-1")
    for seq in range(1, 6):
        east.carried(seq, SECOND - (10 - seq) * MINUTE, after=timedelta(seconds=1))
        lake.carried(seq, SECOND - (10 - seq) * MINUTE, SECOND + MINUTE)
    east.write(folder / "journal")
    lake.write(folder / "journal", name="wn2")


def test_a_task_with_its_old_name_is_no_longer_renamed() -> None:
    names = {"old": "new", "other": "another"}
    assert still_renamed(names, {"new"}) == names
    assert still_renamed(names, {"old"}) == {"other": "another"}


def test_the_next_run_decides_what_comes_after_the_window_and_runs_can_be_repeated(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals = Journals()
    journals.steady(1, START, count=40, hours=2)
    journals.steady(1001, SECOND, count=40, hours=2)
    edge = SECOND - timedelta(minutes=5)
    # In flight at the end of the first window: one arrives, two do not, and the life of one of them ends.
    journals.received(501, edge, edge)
    journals.received(502, edge, edge)
    journals.received(503, edge, edge, expires_at=round((SECOND + MINUTE).timestamp() * 1e6))
    journals.outcome(501, SECOND + MINUTE)
    # Decided by the first run, and again in the second window: the outcome alone, and a whole redelivery.
    journals.carried(504, START + 30 * MINUTE, after=timedelta(seconds=1))
    journals.batches += 1
    journals.outcome(504, SECOND + 10 * MINUTE)
    journals.carried(505, START + 31 * MINUTE, after=timedelta(seconds=1))
    journals.carried(505, START + 31 * MINUTE, SECOND + 11 * MINUTE, attempt=2)
    # After a later message of its session that arrived in the first window.
    journals.carried(507, START + 41 * MINUTE, after=timedelta(seconds=1), order_key="s")
    journals.received(506, START + 40 * MINUTE, SECOND - 10 * MINUTE, order_key="s")
    journals.carried(506, START + 40 * MINUTE, SECOND + 2 * MINUTE, order_key="s", attempt=2)
    # Nine days old when it was received, and lost.
    journals.received(508, START - timedelta(days=9), edge)
    reject_an_unreadable_one(journals)
    journals.write(tmp_path / "journal")
    rename(tmp_path)
    create_again(tmp_path)
    hold_over_the_hour(tmp_path)
    number_as_partitions_do(tmp_path)
    read_a_hub_again(tmp_path)
    move_sessions(tmp_path)
    first, second = both(spark, tmp_path)
    left_open: Verdicts = {
        **{(TASK, seq): "in_flight" for seq in (501, 502, 503, 506, 508)},
        (TASK, None): "rejected",
        ("orders-old", 501): "in_flight",
        ("partitioned", PARTITIONED): "in_flight",
        ("created-again", 2): "out_of_order",
    }
    assert verdicts(first) == left_open
    assert kinds(first) == []
    assert verdicts(second) == {
        (TASK, 502): "missing",
        (TASK, 503): "missing",
        (TASK, 504): "duplicated",
        (TASK, 505): "duplicated",
        (TASK, 506): "out_of_order",
        (TASK, 508): "missing",
        ("partitioned", PARTITIONED): "missing",
        **{("moved", seq): "out_of_order" for seq in (10, 21, 31)},
    }
    task = of(second, TASK)
    assert (task.entered, task.carried, task.reopened) == (40, 5, 2)
    assert sum(task.verdicts.values()) == 47
    assert {row["src_seq"]: row["known_since"] for row in table(second, "missing")} == dict.fromkeys(
        (502, 503, 508, PARTITIONED), first.summary.run
    )
    assert of(first, "partitioned").verdicts == {"delivered": 40, "in_flight": 1}
    assert of(first, "held").verdicts == {"delivered": 1}
    # A task that reads a hub from the beginning is not the successor of another one.
    assert (of(first, "to-east").entered, of(second, "to-lake").entered) == (5, 5)

    # A task that was renamed between two runs is one task.
    assert kinds(second) == ["renamed-task"]
    assert not any(task.task == "orders-old" for task in second.summary.tasks)
    renamed = of(second, "orders-new")
    assert (renamed.carried, renamed.verdicts) == (1, {"delivered": 41})

    # The same numbers of an entity that was created again are other messages.
    assert of(first, "created-again").verdicts == {"delivered": 83, "out_of_order": 1}

    # A repetition gives the same bytes, also after an interrupted attempt.
    before = content(tmp_path / "out")
    shutil.copytree(
        tmp_path / "out" / "runs" / second.summary.run, tmp_path / "out" / "runs" / f".attempt-{second.summary.run}"
    )
    drop_a_field(tmp_path / "out" / "runs" / first.summary.run / "open")
    again = run(spark, tmp_path, start=SECOND, hours=2)
    assert verdicts(again) == verdicts(second)
    assert content(tmp_path / "out") == before


def test_a_repeated_run_without_findings_replaces_the_first(spark: SparkSession, tmp_path: Path) -> None:
    journals = Journals()
    journals.steady(1, START, count=40, hours=2)
    lost = Journals(instance="wn2-1")
    lost.received(900, START + 5 * MINUTE, START + 5 * MINUTE)
    journals.write(tmp_path / "journal")
    lost.write(tmp_path / "journal", name="wn2")
    assert verdicts(run(spark, tmp_path, hours=2)) == {(TASK, 900): "missing"}
    late = Journals(instance="wn2-1")
    late.outcome(900, START + 6 * MINUTE)
    late.write(tmp_path / "journal", name="wn2")
    frozen = run(spark, tmp_path, hours=2)
    assert verdicts(frozen) == {(TASK, 900): "missing"}
    assert kinds(frozen) == ["changed-input"]
    # The next run reports the file too, once, and reads it for open messages.
    second = Journals(instance="wn3-1")
    second.steady(1001, SECOND, hours=1, count=40)
    second.write(tmp_path / "journal", name="wn3")
    after = run(spark, tmp_path, start=SECOND, hours=1)
    assert kinds(after) == ["changed-input"]
    assert "wn2-" in after.summary.problems[0]["where"]
    assert verdicts(after) == {}
    assert (of(after, TASK).carried, of(after, TASK).verdicts) == (1, {"delivered": 41})
    assert [problem.kind for problem in inputs(spark, tmp_path, start=SECOND, hours=1).problems] == ["changed-input"]
    assert inputs(spark, tmp_path, start=SECOND + timedelta(hours=1), hours=1).problems == []
    # The first run can still be repeated, although its hours were compacted again.
    first = inputs(spark, tmp_path, hours=2)
    assert [problem.kind for problem in first.problems] == ["changed-input"]
    assert sum(hour.records for hour in first.hours.values()) == len(journals.records) + len(lost.records)

    fresh = run(spark, tmp_path, hours=2, settings=Settings(refreeze=True))
    assert fresh.exit_code == 0
    assert verdicts(fresh) == {}
    assert table(fresh, "findings") == []

    # The results of one journal are never mixed with another one.
    (tmp_path / "journal").rename(tmp_path / "other")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "out").symlink_to(tmp_path / "out")
    (tmp_path / "other").rename(tmp_path / "elsewhere" / "journal")
    with pytest.raises(WrongJournal, match=r"/journal, got .*/elsewhere/journal"):
        inputs(spark, tmp_path / "elsewhere", hours=1)
    (tmp_path / "elsewhere" / "journal").rename(tmp_path / "journal")

    # Hours that no run has counted are reported.
    latest = Window(SECOND + timedelta(hours=2), SECOND + timedelta(hours=3)).run
    foreign = tmp_path / "out" / "runs" / latest / "summary.json"
    foreign.parent.mkdir()
    foreign.touch()
    later = inputs(spark, tmp_path, start=SECOND + timedelta(hours=3), hours=1)
    assert later.problems == []
    assert sorted(problem.kind for problem in later.problems_of_previous) == ["not-reconciled", "unreadable-summary"]
    assert any(f"/runs/{latest}/summary.json" in problem.where for problem in later.problems_of_previous)
    assert conclude([], later.problems_of_previous)[0] == 2
