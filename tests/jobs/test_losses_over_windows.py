"""Losses that the records of another window seem to explain: each is a finding, or undecided, and no run is clean."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from busway_reconcile.settings import Settings
from tests.jobs.journals import (
    AT,
    AWAKE,
    HOUR,
    MINUTE,
    SECOND,
    START,
    Journals,
    Record,
    content_of,
    of_task,
    passed_on,
    running,
    us,
)  # fmt: skip
from tests.jobs.results import inputs, run, verdicts

pytestmark = pytest.mark.slow

EDGE = START + 2 * HOUR
"""The end of the first window, and the start of the second."""

Plan = Mapping[str, Sequence[Mapping[str, int]]]
"""By task, the messages that did not simply arrive, by verdict, in each window of two hours; the last holds on."""


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


def start_a_tap(folder: Path) -> Plan:
    """Write a message in flight that was sent before the tap at its target started: only one run can say so."""
    journals = running(of_task("new-tap"), hours=6)
    journals.carried(1, START + 90 * MINUTE, after=SECOND)
    journals.carried(2, START + 110 * MINUTE, after=SECOND)
    journals.arrived_tap(2, START + 110 * MINUTE, START + 110 * MINUTE + SECOND)
    for hour in range(2, 6):
        journals.arrived_tap(AWAKE + hour, START + hour * HOUR + MINUTE, START + hour * HOUR + MINUTE + SECOND)
    journals.write(folder)
    return {journals.task: [{"in_flight": 2, "undecided": 1}, {"undecided": 2}, {}]}


def see_what_has_no_number(folder: Path) -> Plan:
    """Write tasks whose tap has numbers of its own: each message that one received explains one that the tap saw."""
    soon, later = SECOND, 40 * SECOND
    # The tap saw one before the end of the window, and the task received it after; the next one is lost.
    after = tapped_at_source("lost-after-the-edge")
    nameless(after, 1, EDGE - 10 * SECOND, seen=soon, received=later)
    nameless(after, 2, EDGE + 2 * MINUTE, seen=soon, received=None)
    # Nothing is lost: records of both sides are on both sides of the edge.
    clean = tapped_at_source("nothing-lost")
    for nth, second in enumerate(range(-90, 90, 10)):
        late = {"seen": later, "received": soon} if nth % 3 else {"seen": soon, "received": later}
        nameless(clean, 1 + nth, EDGE + second * SECOND, **late)
    enter(clean, 50, EDGE - SECOND, seen=5 * MINUTE)
    clean.carried(50, EDGE - SECOND)
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
        journals.write(folder)
    in_flight = {"missing": 1, "in_flight": 1}
    return {
        after.task: [{"in_flight": 1}, {"missing": 1}],
        clean.task: [{}],
        many.task: [in_flight, in_flight, {"missing": 1}],
        started.task: [{"missing": 1}],
    }


def use_a_number_for_two_messages(folder: Path) -> Plan:
    """Write the outcome of an earlier message with the number of a lost one: the entity was created again."""
    journals = running(of_task("created-twice"), hours=5)
    journals.carried(5, START + HOUR - 10 * SECOND, after=20 * SECOND)
    journals.received(5, EDGE - 10 * SECOND, EDGE + 10 * SECOND)
    journals.write(folder)
    return {journals.task: [{}, {"missing": 1}]}


def use_the_number_of_an_open_message(folder: Path) -> Plan:
    """Write a copy whose entry is in the hour before, beside an open message of the former entity with its number."""
    journals = running(of_task("created-while-open"))
    journals.received(5, AT, AT)
    again, copied = EDGE - 15 * MINUTE, EDGE + 20 * MINUTE
    journals.received(5, again, again)
    held = journals.batches
    journals.carried(5, again, after=SECOND, attempt=2)
    journals.outcome(5, copied, batch_id=held)
    journals.write(folder)
    return {journals.task: [{"missing": 1}, {"missing": 1, "duplicated": 1}, {"missing": 1}]}


def use_the_number_of_a_finding(folder: Path) -> Plan:
    """Write a late message, and a later one with its number of which a copy comes in the next window."""
    journals = running(of_task("created-after-a-finding"))
    journals.carried(7, AT, after=25 * MINUTE)
    again = EDGE - 20 * MINUTE
    journals.carried(7, again, after=SECOND)
    journals.carried(7, again, EDGE + 10 * MINUTE, attempt=2)
    journals.write(folder)
    return {journals.task: [{"late": 1}, {"duplicated": 1}, {}]}


def rename_the_task_of_an_entity_that_is_created_again(folder: Path) -> Plan:
    """Write a task with a new name, which goes on with a message of the old one, and whose numbers begin again."""
    old, new = (
        Journals(task=name, entity="renamed", target="east/renamed", instance=f"{name}-1")
        for name in ("old-name", "new-name")
    )
    for seq in range(1, 9):
        old.carried(seq, AT + seq * MINUTE, after=SECOND)
        new.carried(seq, EDGE + (10 + seq) * MINUTE, after=SECOND)
    old.received(9, EDGE - 5 * MINUTE, EDGE - 5 * MINUTE)
    new.carried(9, EDGE - 5 * MINUTE, EDGE + 2 * MINUTE, attempt=2)
    old.write(folder, name="old")
    new.write(folder, name="new")
    return {"old-name": [{"in_flight": 1}, {}]}


def remove_a_tap(folder: Path) -> Plan:
    """Write a message that a tap did not see before it was removed, and one that was sent after its last record."""
    journals = running(of_task("untapped"), hours=2, is_seen=True)
    journals.carried(1, AT, after=SECOND)
    journals.carried(2, EDGE - 5 * MINUTE, after=SECOND)
    running(journals, since=2, hours=3)
    journals.write(folder)
    return {journals.task: [{"missing": 1, "in_flight": 1}, {"missing": 1}]}


def forge_a_path(folder: Path) -> Plan:
    """Write a message that a task stopped because of a site on its path whose task had been idle until then."""
    journals = running(of_task("forged"), hours=10)
    back = Journals(task="back-forged", entity="forged/Subscriptions/back", target="west/forged")
    there: Record = {"src_site": "east", "hops": ["east"]}
    for hour in (1, 7.5):
        back.received(900 + round(hour), START + hour * HOUR, START + hour * HOUR, **there)
        back.outcome(900 + round(hour), START + hour * HOUR, src_site="east")
    at = START + 7 * HOUR + 10 * MINUTE
    journals.received(1, at, at, hops=["east", "west"])
    journals.outcome(1, at, "looped", stage="routed", reason="it has been there")
    journals.write(folder)
    back.write(folder, name="wn2")
    # A later run that does not read these hours does not take the word of the message.
    return {journals.task: [{}, {}, {}, {"in_flight": 1}, {"missing": 1}]}


def receive_a_dead_letter_twice(folder: Path) -> Plan:
    """Write two messages with one id, of which one has a forwarded dead letter that is received in both windows."""
    journals, at = running(of_task("one-letter")), START + 90 * MINUTE
    same: Record = {"message_id": "twice", **content_of(1)}
    for seq, attempt in ((1, 10), (2, 1)):
        journals.received(seq, at, at, attempt=attempt, **same)
    dead = Journals(task="spill-one-letter", entity="dead", target="east/spilled", instance="dead-1")
    for received, outcome in ((at + MINUTE, "retry"), (START + 3 * HOUR, "sent")):
        dead.received(501, at + MINUTE, received, given_up_by=journals.entity, **same)
        dead.outcome(501, received + SECOND, outcome, **passed_on(content_of(1)))
    journals.write(folder)
    dead.write(folder, name="wn2")
    return {journals.task: [{"spilled": 1, "in_flight": 1}, {"missing": 1}], dead.task: [{"in_flight": 1}, {}]}


def receive_an_expired_message_again(folder: Path) -> Plan:
    """Write messages that a task withheld as expired, one by a clock that is half an hour ahead, and received again."""
    journals, ahead = running(of_task("expired-again")), of_task("expired-again", "wn2-ahead")
    life: Record = {"expires_at": us(AT + 10 * MINUTE)}
    journals.received(1, AT, AT, **life)
    journals.outcome(1, AT + 12 * MINUTE, "expired")
    ahead.received(2, AT, AT + 30 * MINUTE, **life)
    ahead.outcome(2, AT + 30 * MINUTE, "expired")
    for seq, again in ((1, journals), (2, ahead)):
        again.received(seq, AT, START + 3 * HOUR, attempt=2, **life)
        again.outcome(seq, START + 3 * HOUR, "retry")
    journals.write(folder)
    ahead.write(folder, name="wn2")
    return {journals.task: [{"expired": 1, "missing": 1}, {"expired": 1, "missing": 1}, {"missing": 1}]}


def hold_a_message_until_it_expires(folder: Path) -> Plan:
    """Write a message that expired in a batch that its instance held into an hour in which it received nothing."""
    journals, alone = running(of_task("expired-in-hand")), of_task("expired-in-hand", "wn2-1")
    at = EDGE - 10 * MINUTE
    alone.received(1, at, at + SECOND, expires_at=us(at + 5 * MINUTE))
    alone.outcome(1, EDGE + 10 * MINUTE, "expired")
    journals.write(folder)
    alone.write(folder, name="wn2")
    return {journals.task: [{"in_flight": 1}, {"expired": 1}, {}]}


def work_while_a_message_lives(folder: Path) -> Plan:
    """Write a lost message during whose life its task sent another one, neither the first nor the last of its hour."""
    journals, at = running(of_task("at-work")), START + 90 * MINUTE
    journals.received(1, at, at, expires_at=us(at + 5 * MINUTE))
    journals.outcome(1, at + SECOND, "retry", stage="sent", reason="the target is away")
    for seq, minutes in ((2, 2), (3, 20)):
        journals.carried(seq, at + minutes * MINUTE, after=SECOND)
    journals.write(folder)
    return {journals.task: [{"in_flight": 1}, {"missing": 1}]}


def remember_what_was_sent(folder: Path) -> Plan:
    """Write messages that an instance remembers to have sent: these records have no target, and need none."""
    journals = running(of_task("delivered-again"))
    again: Record = {"remembered": True, "check": None, "target": None}
    journals.carried(1, AT, after=SECOND)
    journals.received(1, AT, AT + MINUTE)
    journals.outcome(1, AT + MINUTE, **again)
    # Another copy of its envelope, which came in a message of its own.
    journals.received(2, AT, AT + MINUTE)
    journals.outcome(2, AT + MINUTE, joined=True, **again)
    journals.write(folder)
    return {journals.task: [{}]}


def use_the_number_of_a_lost_message(folder: Path) -> Plan:
    """Write a lost message, and one with its number that arrived, in hours that get another file later."""
    journals = running(of_task("created-soon"))
    journals.received(5, AT, AT)
    journals.carried(5, AT + HOUR, after=SECOND)
    journals.write(folder)
    return {journals.task: [{"missing": 1}]}


def write_late(folder: Path) -> None:
    """Write files of the hours of the first window that came after it was counted."""
    late = of_task("created-soon", "wn9-late")
    for hour in range(2):
        late.received(90 + hour, START + hour * HOUR, START + hour * HOUR)
    late.write(folder, name="wn9")


WRITERS: tuple[Callable[[Path], Plan], ...] = (
    start_a_tap,
    see_what_has_no_number,
    use_a_number_for_two_messages,
    use_the_number_of_an_open_message,
    use_the_number_of_a_finding,
    use_the_number_of_a_lost_message,
    rename_the_task_of_an_entity_that_is_created_again,
    remove_a_tap,
    forge_a_path,
    receive_a_dead_letter_twice,
    receive_an_expired_message_again,
    hold_a_message_until_it_expires,
    work_while_a_message_lives,
    remember_what_was_sent,
)


def test_a_loss_that_another_window_seems_to_explain_is_found(spark: SparkSession, tmp_path: Path) -> None:
    plan: dict[str, Sequence[Mapping[str, int]]] = {}
    for write in WRITERS:
        plan |= write(tmp_path / "journal")
    settings = Settings(grace=HOUR, removed_taps=("untapped=east/untapped",))
    targets: dict[str, list[str]] = {}
    for nth in range(5):
        result = run(spark, tmp_path, start=START + 2 * nth * HOUR, hours=2, settings=settings)
        found = {
            task.task: {verdict: number for verdict, number in task.verdicts.items() if verdict != "delivered"}
            for task in result.summary.tasks
        }
        expected = {task: windows[min(nth, len(windows) - 1)] for task, windows in plan.items()}
        assert {task: one for task, one in found.items() if one} == {task: one for task, one in expected.items() if one}
        if nth == 0:
            write_late(tmp_path / "journal")
        targets |= {task.task: task.targets for task in result.summary.tasks}
    assert targets["delivered-again"] == ["east/delivered-again"]


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
