"""Losses that the records of another window seem to explain: each is a finding, or undecided, and no run is clean."""

import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from busway_reconcile.settings import Settings
from tests.jobs.journals import AWAKE, START, Journals, Record, content_of, passed_on, us
from tests.jobs.losing import AT, HOUR, MINUTE, SECOND, of_task, running
from tests.jobs.results import inputs, run, verdicts

pytestmark = pytest.mark.slow


def enter(journals: Journals, seq: int, at: datetime, *, seen: timedelta | None, **more: Any) -> None:
    """Write that a message entered: a tap with numbers of its own saw it after the time *seen*, or None."""
    if seen is not None:
        journals.entered_tap(seq, at, at + seen, src_seq=None, tgt_seq=seq + 700, **more)


def tapped_at_source(task: str, *, since: int = 0) -> Journals:
    """Return a running task whose topic has a tap with numbers of its own."""
    journals = running(of_task(task), hours=6)
    for hour in range(since, 6):
        enter(journals, AWAKE + hour, START + hour * HOUR + MINUTE, seen=SECOND)
    return journals


def nameless(journals: Journals, seq: int, at: datetime, *, seen: timedelta | None, received: timedelta | None) -> None:
    """Write a message that is equal to others and has no id; None for a record that is missing."""
    same: Record = {"message_id": None, **content_of(1)}
    enter(journals, seq, at, seen=seen, **same)
    if received is not None:
        # Subscriptions get a message at slightly different times.
        journals.received(seq, at + timedelta(milliseconds=3 - seq % 2 * 6), at + received, **same)
        journals.outcome(seq, at + received, **passed_on(content_of(1)))


def test_a_message_in_flight_before_its_tap_started_is_undecided_in_the_next_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals = running(of_task("new-tap"), hours=6)
    at = START + 90 * MINUTE
    journals.received(1, at, at)
    journals.outcome(1, at + SECOND)
    for hour, number in ((1, 2), *((hour, AWAKE + hour) for hour in range(2, 6))):
        seen = START + hour * HOUR + (50 * MINUTE if number == 2 else MINUTE)
        if number == 2:
            journals.received(2, seen, seen)
            journals.outcome(2, seen + SECOND)
        journals.arrived_tap(number, seen, seen + SECOND)
    journals.write(tmp_path / "journal")
    first = run(spark, tmp_path, hours=2)
    assert verdicts(first)["new-tap", 1] == "in_flight"
    second = run(spark, tmp_path, start=START + 2 * HOUR)
    assert (verdicts(second)["new-tap", 1], second.exit_code) == ("undecided", 2)
    third = run(spark, tmp_path, start=START + 6 * HOUR, hours=1)
    assert verdicts(third) == {}


def test_each_message_that_a_task_received_explains_one_message_that_a_tap_with_its_own_numbers_saw(
    spark: SparkSession, tmp_path: Path
) -> None:
    edge, soon, later = START + 2 * HOUR, SECOND, 40 * SECOND
    # The tap saw one before the end of the window, and the task received it after; the next one is lost.
    after = tapped_at_source("lost-after-the-edge")
    nameless(after, 1, edge - 10 * SECOND, seen=soon, received=later)
    nameless(after, 2, edge + 2 * MINUTE, seen=soon, received=None)
    # Nothing is lost: records of both sides are on both sides of the edge.
    clean = tapped_at_source("nothing-lost")
    for nth, second in enumerate(range(-90, 90, 10)):
        late = {"seen": later, "received": soon} if nth % 3 else {"seen": soon, "received": later}
        nameless(clean, 1 + nth, edge + second * SECOND, **late)
    enter(clean, 50, edge - SECOND, seen=5 * MINUTE)
    clean.received(50, edge - SECOND, edge - SECOND)
    clean.outcome(50, edge - SECOND)
    # One of many is lost: no younger one, which could be in flight in each run, takes its place.
    many = tapped_at_source("one-of-many")
    for nth in range(1, 600):
        nameless(many, nth, AT + nth * 30 * SECOND, seen=soon, received=None if nth == 20 else later)
    # The task received many that a tap did not see, because it started later or had ended.
    started = tapped_at_source("tap-started", since=1)
    for nth in range(1, 100):
        seen = soon if 30 < nth < 70 else None
        nameless(started, nth, AT + nth * MINUTE, seen=seen, received=None if nth == 35 else soon)
    for journals in (after, clean, many, started):
        journals.write(tmp_path / "journal")
    expected: tuple[dict[str, dict[str, int]], ...] = (
        {after.task: {"in_flight": 1}, clean.task: {}, many.task: {"missing": 1, "in_flight": 1}},
        {after.task: {"missing": 1}, clean.task: {}, many.task: {"missing": 1, "in_flight": 1}},
        {after.task: {"missing": 1}, clean.task: {}, many.task: {"missing": 1}},
    )
    for nth, of_window in enumerate(expected):
        result = run(spark, tmp_path, start=START + 2 * nth * HOUR, hours=2)
        found = {
            task.task: {verdict: number for verdict, number in task.verdicts.items() if verdict != "delivered"}
            for task in result.summary.tasks
        }
        assert found == {**of_window, started.task: {"missing": 1}}


def test_the_outcome_of_an_earlier_message_with_the_same_number_explains_no_loss(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals = running(of_task("created-twice"), hours=5)
    # Received in one hour and sent in the next; the entity is then deleted and created, and the numbers start again.
    journals.received(5, START + HOUR - 10 * SECOND, START + HOUR - 10 * SECOND)
    journals.outcome(5, START + HOUR + 10 * SECOND)
    journals.received(5, START + 2 * HOUR - 10 * SECOND, START + 2 * HOUR + 10 * SECOND)
    journals.write(tmp_path / "journal")
    assert run(spark, tmp_path, hours=2).exit_code == 0
    assert verdicts(run(spark, tmp_path, start=START + 2 * HOUR, hours=3)) == {("created-twice", 5): "missing"}


def test_a_message_that_a_tap_did_not_see_stays_missing_when_the_tap_is_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals = running(of_task("untapped"), hours=2, is_seen=True)
    journals.received(1, AT, AT)
    journals.outcome(1, AT + SECOND)
    # Sent after the last record of the tap: only the task knows about it.
    journals.received(2, START + 2 * HOUR - 5 * MINUTE, START + 2 * HOUR - 5 * MINUTE)
    journals.outcome(2, START + 2 * HOUR - 5 * MINUTE)
    running(journals, since=2, hours=3)
    journals.write(tmp_path / "journal")
    assert verdicts(run(spark, tmp_path, hours=2)) == {("untapped", 1): "missing", ("untapped", 2): "in_flight"}
    night = Settings(grace=HOUR, removed_taps=("untapped=east/untapped",))
    second = run(spark, tmp_path, start=START + 2 * HOUR, settings=night)
    assert verdicts(second) == {("untapped", 1): "missing"}
    assert second.summary.counts == {"delivered": 2, "missing": 1}


def test_nothing_is_in_flight_once_all_writers_have_stopped_whatever_their_clocks_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals, ahead = running(of_task("stopped"), hours=1), of_task("stopped", "wn2-1")
    ahead.received(1, AT, AT + 20 * SECOND)
    journals.write(tmp_path / "journal")
    ahead.write(tmp_path / "journal", name="wn2")
    result = run(spark, tmp_path, hours=1, now=AT + SECOND, settings=Settings(writers_stopped=True))
    assert verdicts(result) == {("stopped", 1): "missing"}


def test_the_rest_of_an_hour_that_a_run_counted_only_in_part_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    running(of_task("interrupted"), hours=2).write(tmp_path / "journal")
    middle = START + 90 * MINUTE
    assert run(spark, tmp_path, hours=2, now=middle, settings=Settings(writers_stopped=True)).exit_code == 0
    after = inputs(spark, tmp_path, start=START + 2 * HOUR, hours=1)
    assert [(problem.kind, problem.where) for problem in after.problems_of_previous] == [
        ("not-reconciled", middle.isoformat())
    ]


def test_a_lost_table_of_open_messages_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    journals = running(of_task("forgotten"), hours=2)
    journals.received(1, AT + HOUR, AT + HOUR)
    journals.write(tmp_path / "journal")
    first = run(spark, tmp_path, hours=1)
    assert first.exit_code == 0
    second = run(spark, tmp_path, start=START + HOUR, hours=1)
    assert verdicts(second) == {("forgotten", 1): "in_flight"}
    shutil.rmtree(second.tables["open"].removeprefix("file:"))
    third = run(spark, tmp_path, start=START + 2 * HOUR, hours=1)
    assert [problem["where"] for problem in third.summary.problems] == [second.tables["open"]]


def test_empty_files_of_both_sides_of_an_instance_are_not_clean(spark: SparkSession, tmp_path: Path) -> None:
    running(of_task("copied"), hours=1).write(tmp_path / "journal")
    for path in running(of_task("copied", "wn2-1"), hours=1).write(tmp_path / "journal", name="wn2"):
        path.write_bytes(b"")
    found = inputs(spark, tmp_path, hours=1)
    assert [problem.kind for problem in found.problems] == ["torn-file", "torn-file"]


def test_a_task_that_was_idle_since_the_window_began_refutes_a_forged_path(spark: SparkSession, tmp_path: Path) -> None:
    journals = running(of_task("forged"), hours=8)
    back = Journals(task="back-forged", entity="forged/Subscriptions/back", target="west/forged")
    there: Record = {"src_site": "east", "hops": ["east"]}
    for hour in (1, 7):
        back.received(900 + hour, START + hour * HOUR, START + hour * HOUR, **there)
        back.outcome(900 + hour, START + hour * HOUR, src_site="east")
    at = START + 6 * HOUR
    journals.received(1, at, at, hops=["east", "west"])
    journals.outcome(1, at, "looped", stage="routed", reason="it has been there")
    journals.write(tmp_path / "journal")
    back.write(tmp_path / "journal", name="wn2")
    assert run(spark, tmp_path).exit_code == 0
    assert verdicts(run(spark, tmp_path, start=START + 4 * HOUR)) == {("forged", 1): "missing"}
    # A later run that does not read these hours does not take the word of the message.
    assert verdicts(run(spark, tmp_path, start=START + 8 * HOUR, hours=1)) == {("forged", 1): "missing"}


def test_a_forwarded_dead_letter_that_is_received_again_in_the_next_window_explains_no_second_message(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals, at = running(of_task("one-letter")), START + 90 * MINUTE
    same: Record = {"message_id": "twice", **content_of(1)}
    for seq, attempt in ((1, 10), (2, 1)):
        journals.received(seq, at, at, attempt=attempt, **same)
    dead = Journals(task="spill-one-letter", entity="dead", target="east/spilled", instance="dead-1")
    for received, outcome in ((at + MINUTE, "retry"), (START + 3 * HOUR, "sent")):
        dead.received(501, at + MINUTE, received, given_up_by=journals.entity, **same)
        dead.outcome(501, received + SECOND, outcome, **passed_on(content_of(1)))
    journals.write(tmp_path / "journal")
    dead.write(tmp_path / "journal", name="wn2")
    first = verdicts(run(spark, tmp_path, hours=2))
    assert first == {
        ("one-letter", 1): "spilled",
        ("one-letter", 2): "in_flight",
        ("spill-one-letter", 501): "in_flight",
    }
    second = verdicts(run(spark, tmp_path, start=START + 2 * HOUR, hours=2))
    assert second["one-letter", 2] == "missing"


def test_a_message_that_expired_stays_expired_when_a_later_window_has_another_record_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals, ahead = running(of_task("expired-again")), of_task("expired-again", "wn2-ahead")
    life: Record = {"expires_at": us(AT + 10 * MINUTE)}
    journals.received(1, AT, AT, **life)
    journals.outcome(1, AT + 12 * MINUTE, "expired")
    # The clock of this instance is half an hour ahead: the life of the message had not ended.
    ahead.received(2, AT, AT + 30 * MINUTE, **life)
    ahead.outcome(2, AT + 30 * MINUTE, "expired")
    for seq, again in ((1, journals), (2, ahead)):
        again.received(seq, AT, START + 3 * HOUR, attempt=2, **life)
        again.outcome(seq, START + 3 * HOUR, "retry")
    journals.write(tmp_path / "journal")
    ahead.write(tmp_path / "journal", name="wn2")
    expected = {("expired-again", 1): "expired", ("expired-again", 2): "missing"}
    assert verdicts(run(spark, tmp_path, hours=2)) == expected
    assert verdicts(run(spark, tmp_path, start=START + 2 * HOUR, hours=3)) == expected


def test_an_hour_in_which_only_a_clock_that_is_ahead_writes_counts_once_all_writers_have_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals, ahead = running(of_task("next-hour"), hours=1), of_task("next-hour", "wn2-1")
    for seq in (1, 2):
        ahead.received(seq, START + HOUR - 40 * SECOND, START + HOUR + 10 * SECOND)
    ahead.outcome(2, START + HOUR + 11 * SECOND)
    journals.write(tmp_path / "journal")
    ahead.write(tmp_path / "journal", name="wn2")
    now = START + HOUR - 20 * SECOND
    result = run(spark, tmp_path, hours=2, now=now, settings=Settings(writers_stopped=True))
    assert verdicts(result) == {("next-hour", 1): "missing"}


def test_a_message_that_its_instance_remembers_has_no_target_on_record_and_needs_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals = running(of_task("delivered-again"))
    again: Record = {"remembered": True, "check": None, "target": None}
    journals.received(1, AT, AT)
    journals.outcome(1, AT + SECOND)
    journals.received(1, AT, AT + MINUTE)
    journals.outcome(1, AT + MINUTE, **again)
    # Another copy of its envelope, which came in a message of its own.
    journals.received(2, AT, AT + MINUTE)
    journals.outcome(2, AT + MINUTE, joined=True, **again)
    journals.write(tmp_path / "journal")
    result = run(spark, tmp_path)
    assert verdicts(result) == {}
    (task,) = result.summary.tasks
    assert (task.targets, task.verdicts) == (["east/delivered-again"], {"delivered": 6})
