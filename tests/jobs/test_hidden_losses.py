"""Losses that other records of the journal seem to explain: each is a finding, or undecided, and no run is clean."""

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from busway_reconcile.settings import Settings
from tests.jobs.journals import AWAKE, START, Journals, Record, check, content_of, digest, passed_on, us
from tests.jobs.results import inputs, run, verdicts

pytestmark = pytest.mark.slow

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
AT = START + 20 * MINUTE

Plan = Mapping[str, Mapping[int, str]]
"""By task, the verdict of each message that did not simply arrive."""


def of_task(task: str, instance: str = "wn1-1") -> Journals:
    return Journals(task=task, entity=f"{task}/Subscriptions/replication", target=f"east/{task}", instance=instance)


def running(journals: Journals, *, hours: int = 4, since: int = 0, is_seen: bool = False) -> Journals:
    """Return *journals* with a message in each hour, which the tap at the target sees if *is_seen*."""
    for hour in range(since, hours):
        at = START + hour * HOUR + MINUTE
        journals.received(AWAKE + hour, at, at)
        journals.outcome(AWAKE + hour, at + SECOND)
        if is_seen:
            journals.arrived_tap(AWAKE + hour, at, at + SECOND)
    return journals


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


def send_part(journals: Journals, seq: int, part: int, text: str, **more: Any) -> Record:
    """Write that *part* of a message was sent, and return its content."""
    content = {"message_id": f"m-{seq}-{part}", "body_digest": digest(text), "property_digest": digest("part", 8)}
    said = check(content["body_digest"], content["property_digest"])
    journals.outcome(seq, AT + SECOND, part=part, send_ordinal=part, edited=True, check=said, **content, **more)
    return content


def send_a_part_twice_with_other_content(folder: Path) -> Plan:
    """Write a message whose editor made one of its two parts again for the second attempt; the other part is lost."""
    journals = running(of_task("part-edited-again"), is_seen=True)
    for text in ("a part", "the same part, later"):
        journals.received(1, AT, AT, parts=2)
        journals.arrived_tap(1, AT, AT + SECOND, **send_part(journals, 1, 0, text))
    journals.write(folder)
    return {journals.task: {1: "missing"}}


def send_a_part_to_two_targets(folder: Path) -> Plan:
    """Write a message of which one part was sent to two targets, of which one has a tap; the other part is lost."""
    journals = running(of_task("part-routed-again"), is_seen=True)
    journals.received(1, AT, AT, parts=2)
    journals.arrived_tap(1, AT, AT + SECOND, **send_part(journals, 1, 0, "a part"))
    journals.received(1, AT, AT + MINUTE, parts=2)
    send_part(journals, 1, 0, "a part", target="north/other")
    journals.write(folder)
    return {journals.task: {1: "missing"}}


def lose_a_record_of_the_future(folder: Path) -> Plan:
    """Write a message whose enqueued time, which its producer set, is in the next year."""
    journals = running(of_task("from-the-future"))
    journals.received(1, START + timedelta(days=365), AT)
    journals.write(folder)
    return {journals.task: {1: "missing"}}


def dead_letter_one_of_two_with_one_id(folder: Path) -> Plan:
    """Write two tasks of one queue, which each received a message with the same id; only one has a dead letter."""
    one, other = (
        running(Journals(task=name, entity="shared", target="east/shared", instance=f"{name}-1"), hours=hours)
        for name, hours in (("one-reader", 1), ("other-reader", 2))
    )
    same: Record = {"message_id": "twice", **content_of(1)}
    one.received(1, AT, AT, attempt=10, **same)
    other.received(2, AT + MINUTE, AT + MINUTE, **same)
    # The service forwards the dead letters of the queue: they have times of their own.
    dead = Journals(task="spill-shared", entity="shared-dead", target="east/spilled", instance="dead-1")
    dead.received(501, AT + 5 * MINUTE, AT + 5 * MINUTE, given_up_by="shared", **same)
    dead.outcome(501, AT + 5 * MINUTE, **passed_on(content_of(1)))
    for journals in (one, other, dead):
        journals.write(folder, name=journals.task)
    return {"one-reader": {1: "spilled"}, "other-reader": {2: "missing"}}


def hand_over_what_the_source_gives_up(folder: Path) -> Plan:
    """Write a message that a host was asked to send once, and that its source dead-lettered; and one that arrived."""
    journals = running(of_task("asked"), hours=1)
    for seq in (1, 2):
        journals.received(seq, AT, AT)
        journals.outcome(seq, AT + SECOND, handed_over=True)
    dead = Journals(task="spill-asked", entity=f"{journals.entity}/$DeadLetterQueue", target="east/spilled")
    dead.received(501, AT, AT + 5 * MINUTE, given_up_by=journals.entity, message_id="m-1", **content_of(1))
    dead.outcome(501, AT + 5 * MINUTE, **passed_on(content_of(1)))
    journals.write(folder)
    dead.write(folder, name=dead.task)
    return {journals.task: {1: "spilled"}}


def remember_a_part_without_a_record(folder: Path) -> Plan:
    """Write a message of which a tap saw one part, and of which the instance only remembers that it sent the other."""
    journals = running(of_task("remembered"), is_seen=True)
    journals.received(1, AT, AT, parts=2)
    journals.outcome(1, AT + SECOND, part=0, send_ordinal=1, remembered=True, check=None, target="north/other")
    journals.arrived_tap(1, AT, AT + SECOND, **send_part(journals, 1, 1, "a part"))
    journals.write(folder)
    return {journals.task: {1: "undecided"}}


def lose_a_copy_and_remember_that_it_was_sent(folder: Path) -> Plan:
    """Write a message that was delivered again, and whose copy the tap at its target never saw."""
    journals = running(of_task("remembered-and-gone"), is_seen=True)
    journals.received(1, AT, AT)
    journals.outcome(1, AT + SECOND)
    journals.received(1, AT, AT + MINUTE)
    journals.outcome(1, AT + MINUTE, remembered=True, check=None, target=None)
    journals.write(folder)
    return {journals.task: {1: "missing"}}


def send_a_part_twice_and_remember_the_other(folder: Path) -> Plan:
    """Write a message of which a tap saw two copies of one part, and none of the part that was only remembered."""
    journals = running(of_task("remembered-and-twice"), is_seen=True)
    journals.received(1, AT, AT, parts=2)
    content = send_part(journals, 1, 0, "a part")
    journals.arrived_tap(1, AT, AT + SECOND, **content)
    journals.arrived_tap(1, AT, AT + 2 * SECOND, **content)
    journals.outcome(1, AT + SECOND, part=1, send_ordinal=1, remembered=True, check=None)
    journals.write(folder)
    return {journals.task: {1: "missing"}}


def give_a_part_the_id_of_the_other(folder: Path) -> Plan:
    """Write a message of which a tap saw one part twice, once with the id of the other part."""
    journals = running(of_task("mixed-parts"), is_seen=True)
    journals.received(1, AT, AT, parts=2)
    one, other = (send_part(journals, 1, part, f"part {part}") for part in (0, 1))
    for message_id in (one["message_id"], other["message_id"]):
        journals.arrived_tap(1, AT, AT + SECOND, **{**one, "message_id": message_id})
    journals.write(folder)
    return {journals.task: {1: "altered"}}


def lose_a_part_before_the_tap_starts(folder: Path) -> Plan:
    """Write a message of which one part was sent before the tap at its target started, and the other part never."""
    journals = running(of_task("part-before-tap"), hours=1)
    journals.received(1, AT, AT, parts=2)
    send_part(journals, 1, 0, "a part")
    running(journals, since=2, is_seen=True)
    journals.write(folder)
    return {journals.task: {1: "missing", AWAKE: "undecided"}}


def use_numbers_again(folder: Path) -> Plan:
    """Write ten messages, and ten with their numbers 20 minutes later: the queue was created again in between."""
    journals = running(of_task("numbers-again"))
    for generation, seq in itertools.product(range(2), range(1, 11)):
        at = AT + generation * 20 * MINUTE
        same: Record = {"message_id": f"m-{generation}-{seq}", "batch_id": 100 + generation}
        journals.received(seq, at, at, **same)
        journals.outcome(seq, at + SECOND / 2, **same)
    journals.write(folder)
    return {}


def send_to_three(journals: Journals, seq: int, at: datetime, *, seen_after: Sequence[timedelta | None]) -> None:
    """Write a message with three targets that taps watch, each of which saw it after a time, or never."""
    journals.received(seq, at, at, parts=3, order_key="a-key")
    for part, (site, after) in enumerate(zip(("east", "north", "south"), seen_after, strict=True)):
        target, tap = f"{site}/{journals.task}", f"tap-{site}"
        journals.outcome(seq, at + SECOND, part=part, send_ordinal=part, target=target)
        if after is not None:
            numbers: Record = {"target": target, "tap": tap, "order_key": "a-key"}
            journals.arrived_tap(seq, at, at + after, tgt_seq=us(at + after), **numbers)


def lose_the_copy_of_one_target(folder: Path) -> Plan:
    """Write messages with three targets: one is lost for one of them, one is late and one out of order there."""
    journals = of_task("three-targets")
    soon = SECOND, SECOND, SECOND
    for hour in range(4):
        send_to_three(journals, AWAKE + hour, START + hour * HOUR + MINUTE, seen_after=soon)
    send_to_three(journals, 1, AT, seen_after=(SECOND, None, SECOND))
    send_to_three(journals, 2, AT + MINUTE, seen_after=(SECOND, SECOND, 20 * MINUTE))
    send_to_three(journals, 3, AT + 21 * MINUTE, seen_after=(SECOND, 3 * MINUTE, SECOND))
    send_to_three(journals, 4, AT + 22 * MINUTE, seen_after=soon)
    journals.write(folder)
    return {journals.task: {1: "missing", 2: "late", 3: "out_of_order"}}


def answer_the_last_message_late(folder: Path) -> Plan:
    """Write a lost message, and after it one that a tap saw at once, although the task got the answer much later."""
    journals = running(of_task("late-answer"), hours=2, is_seen=True)
    at = START + 2 * HOUR
    journals.received(1, at, at)
    journals.outcome(1, at + SECOND)
    journals.received(2, at + 5 * SECOND, at + 5 * SECOND)
    journals.arrived_tap(2, at + 5 * SECOND, at + 6 * SECOND)
    journals.outcome(2, at + 3 * MINUTE)
    journals.write(folder)
    return {journals.task: {1: "missing"}}


def send_a_lost_message_again_after_the_tap_ended(folder: Path) -> Plan:
    """Write a message that a running tap never saw, and that was sent again when the tap had ended."""
    journals = running(of_task("again-after-tap"), hours=2, is_seen=True)
    journals.received(1, AT, AT)
    journals.outcome(1, AT + SECOND)
    journals.received(1, AT, AT + 2 * HOUR)
    journals.outcome(1, AT + 2 * HOUR + SECOND)
    running(journals, hours=3, since=2)
    journals.write(folder)
    return {journals.task: {1: "missing", AWAKE + 2: "undecided"}}


WRITERS: tuple[Callable[[Path], Plan], ...] = (
    send_a_part_twice_with_other_content,
    send_a_part_to_two_targets,
    lose_the_copy_of_one_target,
    lose_a_record_of_the_future,
    dead_letter_one_of_two_with_one_id,
    hand_over_what_the_source_gives_up,
    lose_a_copy_and_remember_that_it_was_sent,
    remember_a_part_without_a_record,
    send_a_part_twice_and_remember_the_other,
    give_a_part_the_id_of_the_other,
    lose_a_part_before_the_tap_starts,
    use_numbers_again,
    answer_the_last_message_late,
    send_a_lost_message_again_after_the_tap_ended,
)


@pytest.mark.always
def test_a_loss_that_other_records_seem_to_explain_is_found(spark: SparkSession, tmp_path: Path) -> None:
    plan: dict[str, Mapping[int, str]] = {}
    for write in WRITERS:
        plan |= write(tmp_path / "journal")
    result = run(spark, tmp_path)
    assert verdicts(result) == {(task, seq): verdict for task, one in plan.items() for seq, verdict in one.items()}
    [again] = [task for task in result.summary.tasks if task.task == "numbers-again"]
    assert 400 < again.lag_milliseconds["p50"] < 600
    assert again.lag_milliseconds["max"] < 1_100
    assert sum(hour["messages"] for hour in again.lag_by_hour) == 24


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
            each.task: {verdict: number for verdict, number in each.verdicts.items() if verdict != "delivered"}
            for each in result.summary.tasks
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
    assert [(each.kind, each.where) for each in after.problems_of_previous] == [("not-reconciled", middle.isoformat())]


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
    assert [each["where"] for each in third.summary.problems] == [second.tables["open"]]


def test_empty_files_of_both_sides_of_an_instance_are_not_clean(spark: SparkSession, tmp_path: Path) -> None:
    running(of_task("copied"), hours=1).write(tmp_path / "journal")
    for path in running(of_task("copied", "wn2-1"), hours=1).write(tmp_path / "journal", name="wn2"):
        path.write_bytes(b"")
    found = inputs(spark, tmp_path, hours=1)
    assert [each.kind for each in found.problems] == ["torn-file", "torn-file"]


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
