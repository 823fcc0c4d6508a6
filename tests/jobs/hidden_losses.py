"""Journals with losses that other records seem to explain: each is a finding, or undecided."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.jobs.journals import (
    AT,
    AWAKE,
    HOUR,
    MINUTE,
    SECOND,
    START,
    Journals,
    Record,
    check,
    content_of,
    digest,
    of_task,
    passed_on,
    running,
    us,
)  # fmt: skip

Plan = Mapping[str, Mapping[int, str]]
"""By task, the verdict of each message that did not simply arrive."""


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
    journals.carried(1, AT, after=SECOND)
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
    return {journals.task: {}}


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
    journals.carried(1, at, after=SECOND)
    journals.received(2, at + 5 * SECOND, at + 5 * SECOND)
    journals.arrived_tap(2, at + 5 * SECOND, at + 6 * SECOND)
    journals.outcome(2, at + 3 * MINUTE)
    journals.write(folder)
    return {journals.task: {1: "missing"}}


def send_a_lost_message_again_after_the_tap_ended(folder: Path) -> Plan:
    """Write a message that a running tap never saw, and that was sent again when the tap had ended."""
    journals = running(of_task("again-after-tap"), hours=2, is_seen=True)
    journals.carried(1, AT, after=SECOND)
    journals.carried(1, AT, AT + 2 * HOUR, after=SECOND)
    running(journals, hours=3, since=2)
    journals.write(folder)
    return {journals.task: {1: "missing", AWAKE + 2: "undecided"}}


def see_a_copy_without_its_partition(folder: Path) -> Plan:
    """Write messages of two partitions with one number and time, of which the tap at the target saw one."""
    journals = running(of_task("from-hub"), is_seen=True)
    for part in (0, 1):
        same: Record = {"src_part": part, "message_id": f"of-{part}", "instance": f"wn-{part}"}
        journals.received(1, AT, AT, **same)
        journals.outcome(1, AT + SECOND, **same)
    journals.arrived_tap(1, AT, AT + SECOND, src_part=None, message_id="of-1")
    journals.write(folder)
    return {journals.task: {1: "missing"}}


def see_a_copy_nowhere(folder: Path) -> Plan:
    """Write a second copy of a message that a tap saw, it does not say where."""
    journals = running(of_task("nowhere"), is_seen=True)
    journals.carried(1, AT, after=SECOND)
    for target in (journals.target, None):
        journals.arrived_tap(1, AT, AT + SECOND, target=target)
    journals.write(folder)
    return {journals.task: {1: "duplicated"}}


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
    see_a_copy_without_its_partition,
    see_a_copy_nowhere,
)
