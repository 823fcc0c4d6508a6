"""One watch on a journal and a source: what is read, kept and reported."""

import asyncio
import json
import logging
import tracemalloc
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.clock import ManualClock
from shared.errors import TargetUnavailable
from shared.journal.lines import compressed
from shared.losses.journal_tail import JournalTail
from shared.losses.numbers import Gap, Held
from shared.losses.report import Found, blob_name
from shared.losses.watch import DeadLetters, LossWatch, Place, Seen
from shared.stores.blobs import Blob
from shared.stores.documents import Changed
from tests.memory_sink import SharedSink

NOW = datetime(2026, 11, 23, 10, 58, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PLACE = Place("west", "jobs", is_hub=False)


class Blobs(SharedSink):
    """Append blobs in memory."""

    def __init__(self) -> None:
        super().__init__(ManualClock(NOW))
        self.bytes_read = 0

    async def part(self, name: str, position: int, length: int) -> bytes:
        content = await super().part(name, position, length)
        self.bytes_read += len(content)
        return content

    def write(
        self, time: datetime, *numbers: int, instance: str = "a", outcome: str = "received", **fields: Any
    ) -> None:
        """Append the records of one batch, as a task writes them."""
        lines = [
            {
                "src_seq": number,
                "enqueued_time": round(time.timestamp() * 1_000_000),
                "outcome": outcome,
                "observer": "task",
                "src_site": "west",
                "src_entity": "jobs",
                "src_part": 0,
                "journal_time": round(time.timestamp() * 1_000_000),
                **fields,
            }
            for number in numbers
        ]
        name = f"task=jobs/{time:date=%Y-%m-%d/hour=%H}/role=source/{instance}-1.jsonl.gz"
        member = compressed("".join(json.dumps(line) + "\n" for line in lines).encode())
        self.blobs[name] = self.blobs.get(name, b"") + member


class Kept:
    """The states of watches."""

    def __init__(self) -> None:
        self.content: dict[str, tuple[bytes, int]] = {}

    async def read_all(self, name: str) -> Blob | None:
        found = self.content.get(name)
        return None if found is None else Blob(found[0], str(found[1]))

    async def write_version(self, name: str, content: bytes, version: str | None) -> str:
        present = self.content.get(name)
        if version != (None if present is None else str(present[1])):
            raise Changed("another instance")
        number = 1 if present is None else present[1] + 1
        self.content[name] = content, number
        return str(number)


class Queue:
    """A source that holds some numbers."""

    def __init__(self, *held: int) -> None:
        self.held = set(held)
        self.questions: list[list[tuple[int, int]]] = []
        self.before_answer: Callable[[], None] = lambda: None
        self.error: Exception | None = None

    async def look(self, part: int, gaps: Sequence[Gap], high: int) -> Seen:  # noqa: ARG002
        if self.error is not None:
            raise self.error
        self.before_answer()
        self.questions.append([(gap.first, gap.last) for gap in gaps])
        return Seen([Held(number) for number in sorted(self.held)], None)

    async def dead_letters(self, after: int) -> DeadLetters:  # noqa: ARG002
        return DeadLetters((), is_complete=True)


class Watched:
    """A watch, and its world."""

    def __init__(self, *held: int) -> None:
        self.blobs, self.kept, self.queue = Blobs(), Kept(), Queue(*held)
        self.watch = self.another()

    def another(self) -> LossWatch:
        return LossWatch(PLACE, {"jobs": JournalTail(self.blobs, "jobs")}, self.queue, self.kept)

    def look(self, minutes: float, watch: LossWatch | None = None) -> list[int]:
        found = asyncio.run((watch or self.watch).look(NOW + minutes * MINUTE))
        return _numbers(found)


def _numbers(found: list[Found]) -> list[int]:
    return [number for _, loss in found for number in range(loss.first, loss.last + 1)]


def test_numbers_of_two_instances_over_an_hour_change_are_put_together() -> None:
    world = Watched()
    world.blobs.write(NOW, 1, 2)
    assert world.look(0) == []
    world.blobs.write(NOW + MINUTE, 3, 5, 9)
    world.blobs.write(NOW + 2 * MINUTE, 4, 6, instance="b")
    world.blobs.write(NOW + 1.9 * MINUTE, 8, instance="c")
    assert [world.look(minute) for minute in (2, 3, 4, 5)] == [[], [], [7], []]


def test_what_was_there_before_is_not_read_and_nothing_is_read_twice() -> None:
    world = Watched()
    world.blobs.write(NOW - MINUTE, *range(1, 1000))
    assert world.look(0) == []
    assert world.blobs.bytes_read == 0
    world.blobs.write(NOW + MINUTE, 1001)
    for minute in range(1, 20):
        world.look(minute)
    (name, *_) = world.blobs.blobs
    assert world.blobs.bytes_read < len(world.blobs.blobs[name])


@pytest.mark.parametrize("text", [bytes(200 << 20), b"{}\n" * (30 << 20)], ids=["one line", "many lines"])
def test_a_member_that_becomes_a_thousand_times_as_many_bytes_is_not_unpacked(text: bytes) -> None:
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + MINUTE, 1, 2, instance="a")
    name = next(iter(world.blobs.blobs))
    world.blobs.blobs[name.replace("/a-", "/b-")] = compressed(text)
    world.blobs.write(NOW + MINUTE, 3, instance="c")
    tracemalloc.start()
    assert [world.look(minute) for minute in (1, 2, 3, 4)] == [[], [], [], []]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 160 << 20


def test_a_loss_right_after_the_first_start_is_reported() -> None:
    """The look at the start finds an empty journal: a number that is missing later was not received before."""
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + timedelta(seconds=2), 1, 2, 4)
    assert [world.look(minute) for minute in (1, 2, 3, 4)] == [[], [], [3], []]


def test_what_was_received_before_the_first_look_is_no_loss() -> None:
    """Numbers are compared from half a minute after a look that finds records on: those of before are not read."""
    world = Watched()
    world.blobs.write(NOW - timedelta(seconds=2), 1, 2, 3)
    world.look(0)
    world.blobs.write(NOW + timedelta(seconds=2), 1, 4)
    assert [world.look(minute) for minute in (1, 2, 3, 4)] == [[], [], [], []]
    idle = Watched()
    idle.look(0)
    idle.blobs.write(NOW + timedelta(seconds=2), 5, enqueued_time=round((NOW - 60 * MINUTE).timestamp() * 1e6))
    idle.blobs.write(NOW + timedelta(seconds=3), 90, 91)
    assert [idle.look(minute) for minute in (1, 2, 3, 4)] == [[], [], [], []]


@pytest.mark.parametrize(("days", "lost"), [(3, [3, 4]), (10, [3, 4]), (16, [])])
def test_what_a_source_deletes_in_days_without_the_app_is_lost(days: float, lost: list[int]) -> None:
    """EH18: a hub is read from its oldest event on, without an error; a queue forgets what has expired."""
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + MINUTE, 1, 2)
    for minute in (1, 2, 90):
        world.look(minute)
    back = days * 1440.0
    world.blobs.write(NOW + back * MINUTE, 5, 6)
    watch = world.another()
    assert [number for minute in range(1, 5) for number in world.look(back + minute, watch)] == lost


def test_days_in_which_the_app_ran_without_the_watch_are_not_compared() -> None:
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + MINUTE, 1, 2)
    for minute in (1, 2, 90):
        world.look(minute)
    world.blobs.write(NOW + 1440 * MINUTE, 3, 4)
    back = 4 * 1440.0
    world.blobs.write(NOW + back * MINUTE, 8, 9)
    watch = world.another()
    assert [number for minute in range(1, 5) for number in world.look(back + minute, watch)] == []


def test_a_record_that_comes_while_the_source_is_asked_is_no_loss() -> None:
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + MINUTE, 1, 3)
    world.look(1)
    world.look(2)
    world.queue.before_answer = lambda: world.blobs.write(NOW + 3 * MINUTE, 2)
    assert world.look(3) == []


def test_a_watch_that_goes_on_in_another_instance_reports_each_loss_once() -> None:
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + MINUTE, 1, 3, 5)
    world.look(1)
    world.look(2)
    second = world.another()
    assert world.look(3.1, second) == [2, 4]
    # The first one still has its own state, which is not the last one any more.
    assert [world.look(minute) for minute in (3.2, 4, 5, 6)] == [[], [], [], []]


def test_a_source_that_cannot_be_reached_delays_the_find_only() -> None:
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + MINUTE, 1, 3)
    world.queue.error = TargetUnavailable("west/jobs: it cannot be peeked")
    for minute in (1, 2, 3):
        with pytest.raises(TargetUnavailable):
            world.look(minute)
    world.queue.error = None
    assert [world.look(minute) for minute in (4, 5, 6)] == [[], [], [2]]


def test_the_records_of_taps_and_of_another_source_do_not_count() -> None:
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + MINUTE, 1, 3)
    world.blobs.write(NOW + MINUTE, 2, observer="tap")
    world.blobs.write(NOW + MINUTE, 2, src_entity="others")
    assert [world.look(minute) for minute in (1, 2, 3)] == [[], [], [2]]


def test_a_best_effort_journal_that_lacks_records_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + MINUTE, 1)
    world.look(1)
    # The journal was away for a minute; the next message comes half an hour later, with the record of the gap.
    later = NOW + 30 * MINUTE
    world.blobs.write(later, 4)
    world.blobs.write(later, 0, outcome="gap", src_seq=None, journal_time=round((NOW + MINUTE).timestamp() * 1_000_000))
    with caplog.at_level(logging.WARNING):
        assert [world.look(minute) for minute in (30.5, 31.5, 32.5, 33.5)] == [[], [], [], []]
    assert "2 missing messages cannot be decided" in caplog.text
    world.blobs.write(NOW + 50 * MINUTE, 6)
    assert [world.look(minute) for minute in (51, 52, 53)] == [[], [], [5]]


def test_partitions_of_an_entity_have_numbers_of_their_own() -> None:
    world = Watched()
    world.look(0)
    partition = 3 << 48
    world.blobs.write(NOW + MINUTE, 1, 2, partition + 7, partition + 9)
    assert [world.look(minute) for minute in (1, 2, 3)] == [[], [], [partition + 8]]


def test_a_damaged_blob_is_named_and_the_rest_is_read(caplog: pytest.LogCaptureFixture) -> None:
    world = Watched()
    world.look(0)
    world.blobs.blobs["task=jobs/date=2026-11-23/hour=10/role=source/x-1.jsonl.gz"] = b"not gzip"
    world.blobs.write(NOW + MINUTE, 1, 3)
    with caplog.at_level(logging.WARNING):
        assert [world.look(minute) for minute in (1, 2, 3)] == [[], [], [2]]
    assert caplog.text.count("a part that cannot be read") == 1


def test_a_state_that_is_too_old_or_unreadable_is_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + MINUTE, 1, 3)
    with caplog.at_level(logging.WARNING):
        assert world.look(60 * 30, world.another()) == []
        world.kept.content[blob_name("jobs")] = b"{", 9
        assert world.look(60 * 30 + 1, world.another()) == []
    assert caplog.text.count("starts again") == 2


def test_the_error_names_task_source_numbers_and_times(caplog: pytest.LogCaptureFixture) -> None:
    world = Watched()
    world.look(0)
    world.blobs.write(NOW + MINUTE, 1, 3, 6)
    with caplog.at_level(logging.ERROR):
        for minute in (1, 2, 3):
            world.look(minute)
    (record,) = caplog.records
    assert record.getMessage() == (
        "jobs: 3 messages of west/jobs are gone from the source without a record: lost, expired or taken by another "
        "consumer; sequence numbers 2, 4-5, enqueued from 2026-11-23T10:59:30Z to 2026-11-23T10:59:30Z"
    )
