"""
Losses planted in the journal of a whole day that the pipelines and taps of the product wrote, in virtual time.

For each verdict that is no finding there is a message that has it, and a lost one that looks like it.
"""

import asyncio
import contextlib
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from busway_reconcile.settings import Settings
from shared.amqp import map_section, sections
from shared.amqp.values import Value, long, string, timestamp
from shared.clock import ManualClock
from shared.errors import TargetUnavailable
from shared.journal.record import Role
from shared.journal.sink import Stream
from shared.journal.tap import Tap
from shared.journal.task import TaskJournal
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.replay import REPLAY, replay_name
from shared.message.ttl import Remaining
from shared.protocols import Output
from shared.rules.rule import parse_filter
from tests.fakes import OutputThatAccepts, OutputThatIsDown, sleep_by
from tests.jobs.journals import HOUR, MINUTE, START, write
from tests.jobs.results import kinds, run, table, verdicts
from tests.messages import annotations, delivered

LIFE = 3_600_000
ORDERS = Origin("west", "orders")
DEAD_LETTERS = "orders/$DeadLetterQueue"


@dataclass
class Records:
    """A sink that keeps what is written, as records with the time at which they were written."""

    clock: ManualClock
    instance: str
    kept: list[tuple[datetime, dict[str, Any]]] = field(default_factory=list)

    async def append(self, stream: Stream, member: bytes) -> None:  # noqa: ARG002 - each line names its task
        self.kept += [(self.clock.now(), json.loads(line)) for line in gzip.decompress(member).splitlines()]

    async def close(self) -> None:
        pass


class Day:
    """The tasks of west and east, a dead-letter task and a tap, on one day."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.sink = Records(self.clock, "wn1")
        self.seen = 0
        watched = Origin("west", "orders")
        place = Origin("east", "orders/Subscriptions/journal")
        self.tap = Tap(
            "watch", "copy", Role.TARGET, watched=watched, is_hub_watched=False, place=place, target="east/orders",
            is_hub=False, has_same_numbers=False, sink=self.sink, clock=self.clock,
        )  # fmt: skip

    def deliver(
        self,
        *messages: bytes,
        task: str = "copy",
        origin: Origin = ORDERS,
        target: tuple[str, str] = ("east", "orders"),
        output: Output | None = None,
        ahead: timedelta = timedelta(),
        is_repair: bool = False,
        is_seen: bool = True,
    ) -> None:
        """Let a new instance of *task* carry *messages*; the tap sees what it sent to east."""
        clock = ManualClock(self.clock.now() + ahead)
        sink = Records(clock, f"wn{len(self.sink.kept)}")
        accepted = output or OutputThatAccepts()
        journal = TaskJournal(task, sink, is_hub=False, is_required=True, is_repair=is_repair, clock=clock)
        carrying = Task(
            task,
            origin,
            (),
            Router([Route(Target(accepted, *target), parse_filter("kind IS NULL OR kind <> 'unwanted'"))]),
            Target(OutputThatAccepts(), "west", "rejected"),
            Remaining(),
            LoopGuard(),
            hold=timedelta(seconds=2),
        )
        with contextlib.suppress(TargetUnavailable):
            asyncio.run(Pipeline(carrying, journal, clock, sleep_by(clock)).run(list(messages)))
        self.sink.kept += sink.kept
        if task == "copy" and is_seen and isinstance(accepted, OutputThatAccepts):
            self.see([message.content for message in accepted.accepted.get("orders", [])])

    def see(self, contents: Sequence[bytes]) -> None:
        """Let the tap at east receive *contents*."""
        for content in contents:
            self.seen += 1
            raw = sections.split(content)
            now = round(self.clock.now().timestamp() * 1000)
            raw.message_annotations = annotations(
                {"x-opt-sequence-number": long(self.seen), "x-opt-enqueued-time": timestamp(now)}
            )
            asyncio.run(self.tap.see([raw.encode()]))

    def message(self, number: int, *, named: dict[str, Value] | None = None, **options: Any) -> bytes:
        """Return a message that its source enqueues now."""
        now = round(self.clock.now().timestamp() * 1000)
        options = {"enqueued": now, "locked_until": now + 60_000, "body": b"order %d" % number, **options}
        return delivered(number, named=named, **options)

    def lose(self, *numbers: int, role: str = "target", task: str = "copy") -> None:
        """Remove the records of one side of messages."""
        self.sink.kept = [
            (at, each)
            for at, each in self.sink.kept
            if not (each["task"] == task and each["role"] == role and each.get("src_seq") in numbers)
        ]


def dead_letter(day: Day, number: int, enqueued: datetime, reason: str, **options: Any) -> None:
    """Let the task of the dead-letter queue receive a message, with the enqueued time that it had."""
    when = round(enqueued.timestamp() * 1000)
    given_up = day.message(number, enqueued=when, named={"DeadLetterReason": string(reason)}, **options)
    day.deliver(given_up, task="spill", origin=Origin("west", DEAD_LETTERS), target=("east", "spilled"))


def whole_day() -> tuple[Day, dict[int, str]]:  # noqa: C901, PLR0912, PLR0915 - read as a table
    """Return a day with a message every 20 minutes, except in an outage, and the verdicts to expect."""
    day = Day()
    plan: dict[int, str] = {}
    for number in range(1, 72):
        if number == 30:
            day.clock.advance(5 * 3600)  # the outage
        day.deliver(day.message(number, session_id="s"))
        at = day.clock.now()
        match number:
            case 3:  # five losses of messages with a time to live
                losses = range(101, 106)
                day.deliver(*(day.message(each, time_to_live=LIFE) for each in losses), is_seen=False)
                day.lose(*losses)
                plan |= dict.fromkeys(losses, "missing")
            case 5:
                day.deliver(*(day.message(each, named={"kind": string("unwanted")}) for each in (111, 112)))
                day.lose(112)
                plan |= {111: "filtered", 112: "missing"}
            case 7:
                bad = {"repl-path": long(1)}
                day.deliver(*(day.message(each, named=bad) for each in (121, 122)))
                day.lose(122)
                plan |= {121: "rejected", 122: "missing"}
            case 9:
                back = OutputThatAccepts()
                day.deliver(
                    day.message(131), task="back", origin=Origin("east", "orders/Subscriptions/west"),
                    target=("west", "orders"), output=back,
                )  # fmt: skip
                been_there = {"repl-path": string("east")}
                forged = day.message(132, named=been_there)
                day.deliver(day.message(131, named=been_there), forged)
                lonely = day.message(133, named={"repl-path": string("south")})
                day.deliver(lonely, task="lonely", origin=Origin("west", "lonely"), target=("south", "lonely"))
                # The same id and body were at that site, but in an entity that no task copies to west/orders.
                day.deliver(
                    day.message(134), task="elsewhere", origin=Origin("east", "payments"),
                    target=("south", "payments"),
                )  # fmt: skip
                day.deliver(day.message(134, named=been_there))
                plan |= {131: "stopped", 132: "missing", 134: "missing"}
            case 11:
                for each in (141, 142, 143):
                    day.deliver(day.message(each, time_to_live=LIFE), output=OutputThatIsDown())
                day.clock.advance(60)
                dead_letter(day, 141, at, "MaxDeliveryCountExceeded", time_to_live=LIFE)
                # Of another message with the same id, and one that is no dead letter of this message.
                dead_letter(day, 142, at, "MaxDeliveryCountExceeded", body=b"another")
                dead_letter(day, 143, at - 90 * MINUTE, "MaxDeliveryCountExceeded", time_to_live=LIFE)
                plan |= {141: "spilled", 142: "missing", 143: "missing"}
            case 13:
                day.deliver(day.message(151, time_to_live=LIFE), output=OutputThatIsDown())
                plan[151] = "expired"
            case 17:
                dead_letter(day, 151, at - 80 * MINUTE, "TTLExpiredException", time_to_live=LIFE)
                # The clock of this instance is an hour ahead. No lock ends three hours later: it proves nothing (SR11).
                later = round((at + 3 * HOUR).timestamp() * 1000)
                unlocked = day.message(153, time_to_live=LIFE // 2, locked_until=later)
                day.deliver(day.message(152, time_to_live=LIFE // 2), unlocked, ahead=HOUR)
                plan |= {152: "missing", 153: "missing"}
            case 19:
                day.deliver(day.message(161), is_seen=False)
                day.lose(161)
            case 31:
                # Its source expired it in the outage and dead-lettered it; then a person repaired it.
                day.deliver(day.message(162, time_to_live=LIFE), output=OutputThatIsDown())
                day.clock.advance(80 * 60)
                dead_letter(day, 162, at, "TTLExpiredException", time_to_live=LIFE)
                day.deliver(day.message(162, enqueued=round(at.timestamp() * 1000)), is_repair=True)
                plan[162] = "repaired"
            case 23:
                day.deliver(day.message(161, enqueued=round((at - 80 * MINUTE).timestamp() * 1000)), is_repair=True)
                plan[161] = "repaired"
            case 25:
                day.deliver(day.message(171, session_id="one"))
                for _, record in day.sink.kept:
                    if record.get("src_seq") == 171 and record["observer"] == "tap":
                        record["order_key"] = "another"
                plan[171] = "altered"
            case 29:
                day.deliver(day.message(181, time_to_live=LIFE // 2), output=OutputThatIsDown())
                plan[181] = "expired-unsent"
        if number < 56:
            day.clock.advance(20 * 60)
        if day.clock.now() >= START + 24 * HOUR - 20 * MINUTE:
            break
    # The last message of the day is in flight: the next run decides it.
    day.deliver(day.message(191, time_to_live=60_000), is_seen=False)
    day.lose(191)
    plan[191] = "in_flight"
    return day, plan


def test_no_verdict_of_a_whole_day_hides_a_loss(spark: SparkSession, tmp_path: Path) -> None:
    day, plan = whole_day()
    write(tmp_path / "journal", day.sink.kept)
    night = Settings()
    first = run(spark, tmp_path, hours=24, settings=night)
    found = {seq: verdict for (task, seq), verdict in verdicts(first).items() if task == "copy"}
    assert found == {seq: verdict for seq, verdict in plan.items() if verdict not in ("filtered", "rejected")}
    assert kinds(first) == ["clocks-disagree"]
    # Without a journal or a tap of the site that it names, a path is the word of the message.
    assert verdicts(first)["lonely", 133] == "stopped"
    assert [note for note in first.summary.notes if "no journal and no tap of that site" in note]
    notes = {row["src_seq"]: row["note"] for row in table(first, "findings")}
    assert "the source may have expired it" in notes[101]
    assert "the task finished no message from" in notes[181]
    assert "have no record of it" in notes[132]


@pytest.mark.slow
def test_a_night_with_records_of_the_future_is_not_clean_and_its_messages_are_judged_in_their_hour(
    spark: SparkSession, tmp_path: Path
) -> None:
    day = Day()
    day.clock.advance(600)
    day.deliver(*(day.message(each) for each in (1, 2, 3)))
    # The clock of this instance is three hours ahead: it withholds one fresh message as expired, and sends the other.
    day.deliver(day.message(4), day.message(5, time_to_live=LIFE), ahead=3 * HOUR)
    write(tmp_path / "journal", day.sink.kept)
    now = START + HOUR + 15 * MINUTE
    night = Settings()
    first = run(spark, tmp_path, hours=1, now=now, settings=night)
    assert (kinds(first), first.exit_code) == (["future-records"], 2)
    (problem,) = first.summary.problems
    assert problem["where"] == "copy, instance wn1"
    assert "2026-11-20T03 to 2026-11-20T03" in problem["text"]
    # The tap saw the message at the target. Its entry is not lost: it is in the future.
    assert verdicts(first) == {("copy", 4): "undecided"}
    later = run(spark, tmp_path, start=START + HOUR, hours=5, now=START + 7 * HOUR, settings=night)
    assert (kinds(later), later.exit_code) == (["clocks-disagree"], 1)
    (task,) = later.summary.tasks
    assert task.verdicts == {"missing": 1, "delivered": 1}
    assert verdicts(later) == {("copy", 5): "missing"}


REPLAYING = replay_name("copy", "20261123T080000Z")


def marked(content: bytes, key: str) -> bytes:
    """Return a message as `busway replay` sends it through its task."""
    raw = sections.split(content)
    mark = {REPLAY: string(f"{REPLAYING}/{key}")}
    raw.application_properties = map_section.edited(raw.application_properties, b"\x00\x53\x74", mark, string)
    return raw.encode()


@pytest.mark.slow
def test_a_replay_is_counted_apart_and_a_copy_that_it_lost_is_found(spark: SparkSession, tmp_path: Path) -> None:
    day = Day()
    messages = [day.message(number, session_id="s") for number in range(1, 6)]
    for message in messages:
        day.deliver(message)
        day.clock.advance(60)
    day.clock.advance(600)
    for number, message in enumerate(messages):
        output = OutputThatAccepts()
        day.deliver(marked(message, str(number)), task=REPLAYING, output=output, is_repair=True)
        if number != 2:
            day.see([copy.content for copy in output.accepted["orders"]])
        day.clock.advance(120)
    write(tmp_path / "journal", day.sink.kept)
    result = run(spark, tmp_path)
    assert {task.task: task.verdicts for task in result.summary.tasks} == {
        "copy": {"delivered": 5},
        REPLAYING: {"replayed": 4, "missing": 1},
    }
    assert verdicts(result)[REPLAYING, 3] == "missing"
    assert result.summary.problems == []
