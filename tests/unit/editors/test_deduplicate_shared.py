"""Ids that the instances of an app share in blobs."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.clock import ManualClock
from shared.editors.deduplicate import Deduplicate, DeduplicateStep
from shared.editors.state.sent_ids import SharedIds
from shared.errors import BuswayError, TargetUnavailable
from shared.protocols import Outcome
from shared.stores.blobs import Tail
from shared.stores.sqlite_stores import FileBlobs
from tests.fakes import OutputThatAccepts, clock_at_delivery
from tests.messages import delivered
from tests.unit.editors.deduplicating import Line, editor


def shared(path: Path, clock: ManualClock, **options: Any) -> Deduplicate:
    return editor(clock, settings={"STORE": f"file:{path}"}, store={"setting": "STORE"}, **options)


def test_instances_share_the_sent_ids_and_a_restart_keeps_them(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.db", clock_at_delivery()
    one, two = Line(shared(path, clock), clock=clock), Line(shared(path, clock), clock=clock)
    assert two.run((1, "z")) == {Outcome.SENT: 1}
    assert one.run((2, "a")) == {Outcome.SENT: 1}
    assert two.run((3, "a"), (4, "b")) == {Outcome.FILTERED: 1, Outcome.SENT: 1}
    assert one.run((5, "b")) == {Outcome.FILTERED: 1}
    assert Line(shared(path, clock), clock=clock).run((6, "a"), (7, "b"), (8, "z")) == {Outcome.FILTERED: 3}


def test_ids_of_earlier_hours_are_kept_for_the_window_and_then_deleted(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.db", clock_at_delivery()
    blobs = FileBlobs(path, "busway-deduplicate")
    line = Line(shared(path, clock, window="PT2H"), clock=clock)
    line.run((1, "a"))
    clock.advance(3600)
    line.run((2, "b"))
    # Another instance that is late, or whose clock is.
    late = Line(shared(path, ManualClock(clock.now() - timedelta(minutes=50)), window="PT2H"))
    assert late.run((3, "c")) == {Outcome.SENT: 1}
    assert line.run((4, "c")) == {Outcome.SENT: 1}  # more than five minutes late: at worst a duplicate
    clock.advance(1800)
    assert Line(shared(path, clock, window="PT2H"), clock=clock).run((5, "a"), (6, "b")) == {Outcome.FILTERED: 2}
    clock.advance(3600)
    line.run((7, "d"))
    assert line.run((8, "a"), (9, "b")) == {Outcome.SENT: 1, Outcome.FILTERED: 1}
    hours = [name.removeprefix("copy/") for name in asyncio.run(blobs.names("copy/"))]
    assert hours == ["2030-03-17T18-000.ids", "2030-03-17T20-000.ids"]


class Faulty(FileBlobs):
    """A store that is unavailable, loses answers, and whose blobs are full after some appends."""

    faults = 0
    lost_answers = 0
    is_dying = False
    block_limit = 10**9

    def __init__(self, path: Path) -> None:
        super().__init__(path, "ids")
        self.blocks: Counter[str] = Counter()

    async def append(self, name: str, content: bytes) -> bool:
        self._fail()
        if self.is_dying:
            raise KeyboardInterrupt
        if self.blocks[name] >= self.block_limit:
            return False
        self.blocks[name] += 1
        await super().append(name, content)
        if self.lost_answers:
            self.lost_answers -= 1
            raise TargetUnavailable("blob: away")
        return True

    async def tail(self, name: str, position: int) -> Tail:
        self._fail()
        tail = await super().tail(name, position)
        return Tail(tail.content, self.blocks[name] >= self.block_limit)

    def _fail(self) -> None:
        if self.faults:
            self.faults -= 1
            raise TargetUnavailable("blob: away")


def over(blobs: Faulty, clock: ManualClock) -> Deduplicate:
    options = DeduplicateStep.model_validate({"deduplicate": {"window": "PT1H", "store": {"setting": "S"}}}).options
    return Deduplicate(options, SharedIds(blobs, "copy", options.window, options.max_count, clock))


def test_an_unavailable_store_holds_the_batch_and_a_lost_answer_to_an_append_is_harmless(tmp_path: Path) -> None:
    blobs, clock = Faulty(tmp_path / "store.db"), clock_at_delivery()
    blobs.faults, blobs.lost_answers = 3, 2
    line = Line(over(blobs, clock), clock=clock)
    assert line.run((1, "a"), (2, "a")) == {Outcome.SENT: 1, Outcome.FILTERED: 1}
    blobs.faults = 2
    assert line.run((3, "a")) == {Outcome.FILTERED: 1}
    assert Line(over(blobs, clock), clock=clock).run((4, "a"), (5, "b")) == {Outcome.FILTERED: 1, Outcome.SENT: 1}


def test_a_crash_between_the_send_and_its_record_gives_a_duplicate(tmp_path: Path) -> None:
    blobs, clock = Faulty(tmp_path / "store.db"), clock_at_delivery()
    output = OutputThatAccepts()
    line = Line(over(blobs, clock), output=output, clock=clock)
    line.deliver([delivered(1, message_id="z")])
    blobs.is_dying = True
    with pytest.raises(KeyboardInterrupt):
        line.run((2, "a"))
    blobs.is_dying = False
    assert Line(over(blobs, clock), output=output, clock=clock).run((2, "a")) == {Outcome.SENT: 1}
    assert output.ids("orders") == ["z", "a", "a"]


def test_a_full_blob_is_followed_by_another_one(tmp_path: Path) -> None:
    blobs, clock = Faulty(tmp_path / "store.db"), clock_at_delivery()
    blobs.block_limit = 2
    one, two = Line(over(blobs, clock), clock=clock), Line(over(blobs, clock), clock=clock)
    for number in range(1, 8):
        assert (one, two)[number % 2].run((number, f"id-{number}")) == {Outcome.SENT: 1}
    for line in (one, two, Line(over(blobs, clock), clock=clock)):
        assert line.run(*((10 + number, f"id-{number}") for number in range(1, 8))) == {Outcome.FILTERED: 7}
    assert len(asyncio.run(blobs.names("copy/"))) == 4


def test_a_blob_with_foreign_content_stops_the_task(tmp_path: Path) -> None:
    blobs, clock = Faulty(tmp_path / "store.db"), clock_at_delivery()
    asyncio.run(blobs.append("copy/2030-03-17T17-000.ids", b"something else"))
    with pytest.raises(BuswayError, match="expected only ids of sent messages"):
        Line(over(blobs, clock), clock=clock).run((1, "a"))
