"""Runs that follow one another: what one leaves open the next decides, and a late copy brings up what was decided."""

import shutil
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from jobs.reconcile.settings import Settings, Window
from tests.jobs.journals import START, TASK, Journals
from tests.jobs.results import kinds, run, table, verdicts

SECOND = START + timedelta(hours=2)
MINUTE = timedelta(minutes=1)


def a_message(journals, seq, at, **more):
    journals.received(seq, at, at + timedelta(seconds=1), **more)
    journals.outcome(seq, at + timedelta(seconds=2))


def steady(journals, first, start, count=40, hours=2):
    for number in range(count):
        a_message(journals, first + number, start + timedelta(hours=hours) / count * number + MINUTE)


def both(spark, folder, **more):
    return (
        run(spark, folder, hours=2, **more),
        run(spark, folder, start=SECOND, hours=2, **more),
    )


def forget_a_field(table):
    """Write *table* as a job would have that did not know all the fields yet."""
    rows = duckdb.read_parquet(f"{table}/*.parquet").project("* exclude (joined)").to_arrow_table()
    shutil.rmtree(table)
    table.mkdir()
    duckdb.from_arrow(rows).write_parquet(f"{table}/part-0.parquet")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("summary.json")}


def of(result, task):
    return next(each for each in result.summary.tasks if each.task == task)


def of_task(task, entity, instance="wn1-1"):
    return Journals(task=task, entity=entity, target=f"east/{entity}", instance=instance)


def rename(folder):
    """Write a task that has another name in the second window, with a message on its way in between."""
    edge = SECOND - 2 * MINUTE
    old, new = of_task("orders-old", "renamed"), of_task("orders-new", "renamed", "wn2-1")
    steady(old, 1, START)
    old.received(501, edge, edge)
    new.received(501, edge, SECOND + MINUTE, attempt=2)
    new.outcome(501, SECOND + MINUTE)
    steady(new, 1001, SECOND)
    old.write(folder / "journal")
    new.write(folder / "journal", name="wn2")


def make_anew(folder):
    """Write a task whose source numbers its messages from 1 again after an hour."""
    journals = of_task("made-anew", "anew")
    steady(journals, 1, START, hours=1)
    steady(journals, 1, START + timedelta(hours=1), hours=1)
    journals.write(folder / "journal")


def test_what_lands_after_the_window_is_decided_by_the_next_and_runs_can_be_repeated(spark, tmp_path):
    journals = Journals()
    steady(journals, 1, START)
    steady(journals, 1001, SECOND)
    edge = SECOND - timedelta(minutes=5)
    # In flight at the end of the first window: one arrives, one does not, one expires.
    journals.received(501, edge, edge)
    journals.received(502, edge, edge)
    journals.received(503, edge, edge, expires_at=round((SECOND + MINUTE).timestamp() * 1e6))
    journals.outcome(501, SECOND + MINUTE)
    # Decided by the first window, and there again in the second: by the outcome alone, and by a whole redelivery.
    a_message(journals, 504, START + 30 * MINUTE)
    journals.batches += 1
    journals.outcome(504, SECOND + 10 * MINUTE)
    a_message(journals, 505, START + 31 * MINUTE)
    journals.received(505, START + 31 * MINUTE, SECOND + 11 * MINUTE, attempt=2)
    journals.outcome(505, SECOND + 11 * MINUTE)
    # Behind a message of its session that had arrived in the first window.
    a_message(journals, 507, START + 41 * MINUTE, order_key="s")
    journals.received(506, SECOND - 10 * MINUTE, SECOND - 10 * MINUTE, order_key="s")
    journals.received(506, SECOND - 10 * MINUTE, SECOND + 2 * MINUTE, order_key="s", attempt=2)
    journals.outcome(506, SECOND + 2 * MINUTE)
    journals.write(tmp_path / "journal")
    rename(tmp_path)
    make_anew(tmp_path)
    first, second = both(spark, tmp_path)
    assert verdicts(first) == {
        **{(TASK, seq): "in_flight" for seq in (501, 502, 503, 506)},
        ("orders-old", 501): "in_flight",
    }
    assert first.exit_code == 0
    assert verdicts(second) == {
        (TASK, 502): "missing",
        (TASK, 503): "expired",
        (TASK, 504): "duplicated",
        (TASK, 505): "duplicated",
        (TASK, 506): "out_of_order",
    }
    task = of(second, TASK)
    assert (task.entered, task.carried, task.reopened) == (40, 4, 2)
    assert sum(task.verdicts.values()) == 46
    assert {row["src_seq"]: row["known_since"] for row in table(second, "missing")} == {502: first.summary.run}

    # A task that was renamed between two nights is one task.
    assert kinds(first) == []
    assert kinds(second) == ["renamed-task"]
    assert not any(each.task == "orders-old" for each in second.summary.tasks)
    renamed = of(second, "orders-new")
    assert (renamed.carried, renamed.verdicts) == (1, {"delivered": 41})

    # The same numbers of an entity that was made anew are other messages.
    assert of(first, "made-anew").verdicts == {"delivered": 80}

    # Again, in any order, and with an attempt that died half-way: the same bytes.
    before = content(tmp_path / "out")
    shutil.copytree(
        tmp_path / "out" / "runs" / second.summary.run, tmp_path / "out" / "runs" / f".attempt-{second.summary.run}"
    )
    forget_a_field(tmp_path / "out" / "runs" / first.summary.run / "open")
    again = run(spark, tmp_path, start=SECOND, hours=2)
    assert verdicts(again) == verdicts(second)
    assert content(tmp_path / "out") == before


def test_a_repeated_run_that_finds_nothing_leaves_nothing_of_the_first(spark, tmp_path):
    journals = Journals()
    steady(journals, 1, START)
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
    fresh = run(spark, tmp_path, hours=2, settings=Settings(refreeze=True))
    assert fresh.exit_code == 0
    assert verdicts(fresh) == {}
    assert table(fresh, "findings") == []

    # Hours that no run has counted are named.
    later = run(spark, tmp_path, start=START + timedelta(hours=3), hours=1)
    assert kinds(later) == ["not-reconciled"]
    assert later.exit_code == 2


@pytest.mark.parametrize(("start", "end"), [(0, 0), (2, 1)])
def test_a_window_begins_before_it_ends(start, end):
    with pytest.raises(ValueError, match="begin before it ends"):
        Window(START + timedelta(hours=start), START + timedelta(hours=end))
