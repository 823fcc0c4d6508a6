"""Runs that follow one another: what one leaves open the next decides, and a late copy brings up what was decided."""

import shutil
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from jobs.reconcile.evidence import still_renamed
from jobs.reconcile.origin import AnotherJournal
from jobs.reconcile.run import Run
from jobs.reconcile.settings import Settings, Window
from jobs.reconcile.summary import concluded
from tests.jobs.journals import START, TASK, Journals
from tests.jobs.results import Verdicts, inputs, kinds, run, table, verdicts

SECOND = START + timedelta(hours=2)
MINUTE = timedelta(minutes=1)
PARTITIONED = (200 << 48) + 41
WINDOW = Window(START, SECOND)


def a_message(journals, seq, at, **more) -> None:
    journals.received(seq, at, at + timedelta(seconds=1), **more)
    journals.outcome(seq, at + timedelta(seconds=2))


def steady(journals, first, start, count: int = 40, hours: int = 2, **more) -> None:
    for number in range(count):
        a_message(journals, first + number, start + timedelta(hours=hours) / count * number + MINUTE, **more)


def both(spark, folder, **more):
    return (
        run(spark, folder, hours=2, **more),
        run(spark, folder, start=SECOND, hours=2, **more),
    )


def forget_a_field(table) -> None:
    """Write *table* as a job would have that did not know all the fields yet."""
    rows = duckdb.read_parquet(f"{table}/*.parquet").project("* exclude (joined)").to_arrow_table()
    shutil.rmtree(table)
    table.mkdir()
    duckdb.from_arrow(rows).write_parquet(f"{table}/part-0.parquet")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("summary.json")}


def of(result, task):
    return next(each for each in result.summary.tasks if each.task == task)


def of_task(task, entity, instance: str = "wn1-1"):
    return Journals(task=task, entity=entity, target=f"east/{entity}", instance=instance)


def reject_an_unreadable_one(journals) -> None:
    """Add a message that cannot be read, for which there was nobody at first to take it as rejected."""
    for minute, outcome in ((10, "retry"), (20, "rejected")):
        at = START + minute * MINUTE
        journals.received(0, at, at, src_seq=None, enqueued_time=None)
        journals.outcome(0, at, outcome, src_seq=None)


def rename(folder) -> None:
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


def make_anew(folder) -> None:
    """Write a task whose source numbers its messages from 1 again after an hour, and once more within an hour."""
    journals = of_task("made-anew", "anew")
    steady(journals, 1, START, hours=1, order_key="s")
    steady(journals, 1, START + timedelta(hours=1), hours=1, order_key="s")
    for nth, (seq, seconds) in enumerate([(1, 0), (3, 2), (2, 1), (4, 3)]):
        enqueued = SECOND - timedelta(seconds=20 - seconds)
        journals.received(seq, enqueued, SECOND - timedelta(seconds=10 - nth), order_key="s")
        journals.outcome(seq, SECOND - timedelta(seconds=10 - nth))
    journals.write(folder / "journal")


def move_sessions(folder) -> None:
    """Write a task whose sessions go from one instance to another, with clocks that are seconds apart."""
    first, second = of_task("moved", "moved"), of_task("moved", "moved", "wn2-1")
    at = SECOND + 20 * MINUTE
    for journals, seq, enqueued, written, key in (
        # In order, whatever their clocks say; in the last case the clocks put them into two hours.
        (first, 1, 0, 5, "moves"), (second, 2, 1, 2, "moves"),
        (second, 3, 2390, 2401, "moves"), (first, 4, 2391, 2399, "moves"),
        # Behind by the instance's own clock, by more than clocks differ, and by that over the hour.
        (first, 12, 0, 1, "own"), (second, 11, 0, 2, "own"), (first, 10, 0, 3, "own"),
        (first, 22, 0, 1, "other"), (second, 21, 0, 90, "other"),
        (first, 32, 0, 1, "hours"), (second, 31, 0, 2460, "hours"),
    ):  # fmt: skip
        when = at + timedelta(seconds=written)
        journals.received(seq, at + timedelta(seconds=enqueued, milliseconds=seq), when, order_key=key)
        journals.outcome(seq, when)
    first.write(folder / "journal")
    second.write(folder / "journal", name="wn2")


def hold_over_the_hour(folder) -> None:
    """Write a task that does nothing in two hours but to hold a message from one into the other."""
    held = of_task("held", "held")
    held.received(1, START + 53 * MINUTE, START + 53 * MINUTE)
    held.outcome(1, START + 66 * MINUTE)
    held.write(folder / "journal")


def number_as_partitions_do(folder) -> None:
    """Write a task whose source has its partition in the upper bits of its numbers, and one message that is lost."""
    partitioned = of_task("partitioned", "partitioned")
    steady(partitioned, PARTITIONED - 40, START)
    partitioned.received(PARTITIONED, SECOND - 5 * MINUTE, SECOND - 5 * MINUTE)
    partitioned.write(folder / "journal")


def read_a_hub_again(folder) -> None:
    """Write a task that reads a quiet hub from its beginning, after another one has."""
    east, lake = of_task("to-east", "hub"), of_task("to-lake", "hub", "wn2-1")
    for seq in range(1, 6):
        a_message(east, seq, SECOND - (10 - seq) * MINUTE)
        lake.received(seq, SECOND - (10 - seq) * MINUTE, SECOND + MINUTE)
        lake.outcome(seq, SECOND + MINUTE)
    east.write(folder / "journal")
    lake.write(folder / "journal", name="wn2")


def test_a_task_that_has_its_old_name_again_is_not_taken_for_its_successor() -> None:
    names = {"old": "new", "other": "another"}
    assert still_renamed(names, {"new"}) == names
    assert still_renamed(names, {"old"}) == {"other": "another"}


def test_what_lands_after_the_window_is_decided_by_the_next_and_runs_can_be_repeated(spark, tmp_path: Path) -> None:
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
    journals.received(506, START + 40 * MINUTE, SECOND - 10 * MINUTE, order_key="s")
    journals.received(506, START + 40 * MINUTE, SECOND + 2 * MINUTE, order_key="s", attempt=2)
    journals.outcome(506, SECOND + 2 * MINUTE)
    # Nine days old when it was taken, and lost.
    journals.received(508, START - timedelta(days=9), edge)
    reject_an_unreadable_one(journals)
    journals.write(tmp_path / "journal")
    rename(tmp_path)
    make_anew(tmp_path)
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
        ("made-anew", 2): "out_of_order",
    }
    assert verdicts(first) == left_open
    assert kinds(first) == []
    assert verdicts(second) == {
        (TASK, 502): "missing",
        (TASK, 503): "expired",
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
        (502, 508, PARTITIONED), first.summary.run
    )
    assert of(first, "partitioned").verdicts == {"delivered": 40, "in_flight": 1}
    assert of(first, "held").verdicts == {"delivered": 1}
    # To read a hub from its beginning is not to take over from another task.
    assert (of(first, "to-east").entered, of(second, "to-lake").entered) == (5, 5)

    # A task that was renamed between two nights is one task.
    assert kinds(second) == ["renamed-task"]
    assert not any(each.task == "orders-old" for each in second.summary.tasks)
    renamed = of(second, "orders-new")
    assert (renamed.carried, renamed.verdicts) == (1, {"delivered": 41})

    # The same numbers of an entity that was made anew are other messages.
    assert of(first, "made-anew").verdicts == {"delivered": 83, "out_of_order": 1}

    # Again, in any order, and with an attempt that died half-way: the same bytes.
    before = content(tmp_path / "out")
    shutil.copytree(
        tmp_path / "out" / "runs" / second.summary.run, tmp_path / "out" / "runs" / f".attempt-{second.summary.run}"
    )
    forget_a_field(tmp_path / "out" / "runs" / first.summary.run / "open")
    again = run(spark, tmp_path, start=SECOND, hours=2)
    assert verdicts(again) == verdicts(second)
    assert content(tmp_path / "out") == before


def test_a_repeated_run_that_finds_nothing_leaves_nothing_of_the_first(spark, tmp_path: Path) -> None:
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
    # The next night names it too, once, and looks in it for what was left open.
    second = Journals(instance="wn3-1")
    steady(second, 1001, SECOND, hours=1)
    second.write(tmp_path / "journal", name="wn3")
    after = run(spark, tmp_path, start=SECOND, hours=1)
    assert kinds(after) == ["changed-input"]
    assert "wn2-" in after.summary.problems[0]["where"]
    assert verdicts(after) == {}
    assert (of(after, TASK).carried, of(after, TASK).verdicts) == (1, {"delivered": 41})
    assert [each.kind for each in inputs(spark, tmp_path, start=SECOND, hours=1)[0].problems] == ["changed-input"]
    assert inputs(spark, tmp_path, start=SECOND + timedelta(hours=1), hours=1)[0].problems == []
    # The first can be repeated still, as it was, although its hours have been made anew since.
    first, made = inputs(spark, tmp_path, hours=2)
    assert [each.kind for each in first.problems] == ["changed-input"]
    assert sum(hour.records for hour in made.values()) == len(journals.records) + len(lost.records)

    fresh = run(spark, tmp_path, hours=2, settings=Settings(refreeze=True))
    assert fresh.exit_code == 0
    assert verdicts(fresh) == {}
    assert table(fresh, "findings") == []

    # What was made of one journal is no place for what another one tells.
    (tmp_path / "journal").rename(tmp_path / "other")
    with pytest.raises(AnotherJournal, match=r"/journal, and this is .*/other"):
        Run(spark, str(tmp_path / "other"), str(tmp_path / "out"), WINDOW, SECOND, settings=Settings()).inputs([])
    (tmp_path / "other").rename(tmp_path / "journal")

    # Hours that no run has counted are named.
    foreign = tmp_path / "out" / "runs" / "another" / "summary.json"
    foreign.parent.mkdir()
    foreign.touch()
    later, _ = inputs(spark, tmp_path, start=SECOND + timedelta(hours=3), hours=1)
    later.previous()
    assert sorted(each.kind for each in later.problems) == ["not-reconciled", "unreadable-summary"]
    assert any("/runs/another/summary.json" in each.where for each in later.problems)
    assert concluded([], later.problems)[0] == 2


@pytest.mark.parametrize(("start", "end"), [(0, 0), (2, 1)])
def test_a_window_begins_before_it_ends(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="begin before it ends"):
        Window(START + timedelta(hours=start), START + timedelta(hours=end))
