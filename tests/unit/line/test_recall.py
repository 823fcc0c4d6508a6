"""What another instance has on record is not sent again: copies for several targets, and parts."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from shared.amqp.values import long, string, timestamp
from shared.errors import TargetUnavailable
from shared.journal.log import LogJournal
from shared.journal.record import Role
from shared.journal.task import TaskJournal
from shared.line import recall
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Target
from shared.protocols import Journal
from tests.fakes import OutputThatAccepts, OutputThatIsDown, OutputThatRejects, sleep_by
from tests.memory_sink import SharedSink
from tests.messages import ENQUEUED, delivered
from tests.unit.line.copying import Editing, Line, halves

_HOUR = 3_600_000


class App:
    """Instances of one app, which follow each other: a task to two targets, of which the second is away at first."""

    def __init__(self, *, second: OutputThatAccepts | None = None, splits: bool = False) -> None:
        self.first, self.second = OutputThatAccepts(), second or OutputThatIsDown()
        targets = [Target(self.first, "east", "orders"), Target(self.second, "north", "orders")]
        routes = [Route(targets[0])] if splits else [Route(targets[0], others=targets[1:])]
        self.line = Line(routes=routes, editors=[Editing(halves)] if splits else [])
        self.clock = self.line.clock
        self.sink = SharedSink(self.clock)

    def instance(self, journal: Journal | None = None) -> Pipeline:
        """Return a new one, which remembers nothing."""
        journal = journal or TaskJournal("copy", self.sink, is_hub=False, is_required=True, clock=self.clock)
        return Pipeline(self.line.task, journal, self.clock, sleep_by(self.clock))

    def run(self, pipeline: Pipeline, *batch: bytes, partition: str | None = None) -> None:
        asyncio.run(pipeline.run(batch, partition, [bytes([number]) * 16 for number in range(len(batch))]))

    def fail(self, *batch: bytes, partition: str | None = None) -> None:
        """Let an instance send to the first target, wait in vain for the second, and be killed."""
        with pytest.raises(TargetUnavailable):
            self.run(self.instance(), *batch, partition=partition)
        assert isinstance(self.second, OutputThatIsDown)
        self.second.put_up()


def test_a_part_that_is_on_record_is_not_sent_again() -> None:
    app = App(splits=True)
    app.run(app.instance(), delivered(1, delivery_count=1))
    app.run(app.instance(), delivered(1, delivery_count=2))
    assert app.first.ids("orders") == ["half-0", "half-1"]
    # Of a message that the editor divides in another way now, no part is known.
    app.line.task = replace(app.line.task, editors=[Editing(lambda message: [*halves(message), message.copy()])])
    app.run(app.instance(), delivered(1, delivery_count=3))
    assert app.first.ids("orders")[2:] == ["half-0", "half-1", "m-1"]


def test_a_refused_copy_that_is_in_rejects_is_not_rejected_again() -> None:
    app = App(second=OutputThatRejects(lambda _: True))
    app.run(app.instance(), delivered(1, delivery_count=1))
    app.run(app.instance(), delivered(1, delivery_count=2))
    assert [message.message_id for message in app.line.rejected()] == [string("m-1")]


@pytest.mark.parametrize(
    "other",
    [
        delivered(2, message_id="m-1", delivery_count=2),
        delivered(1, enqueued=ENQUEUED + _HOUR, delivery_count=2),
        delivered(
            2,
            message_id="m-1",
            delivery_count=2,
            named={"x-opt-sequence-number": long(1), "x-opt-enqueued-time": timestamp(ENQUEUED)},
        ),
    ],
    ids=["same message id", "entity created again", "annotations forged as properties"],
)
def test_no_producer_can_withhold_a_message_by_making_it_look_like_one_that_was_sent(other: bytes) -> None:
    app = App()
    app.fail(delivered(1, delivery_count=1))
    app.run(app.instance(), other)
    assert app.first.ids("orders") == ["m-1", "m-1"]


def test_a_message_of_another_source_is_another_message() -> None:
    app = App()
    app.fail(delivered(1, delivery_count=1))
    app.line.task = replace(app.line.task, origin=app.line.task.origin._replace(entity="invoices"))
    app.run(app.instance(), delivered(1, delivery_count=2))
    assert app.first.ids("orders") == ["m-1", "m-1"]


def test_the_journal_is_read_once_and_not_for_new_messages() -> None:
    app = App(second=OutputThatAccepts())
    pipeline = app.instance()
    app.run(pipeline, delivered(1, delivery_count=1))
    listings = app.sink.listings
    assert listings > 0, "another instance may have had what was enqueued before this one began"
    for number in range(2, 60):
        app.clock.advance(5)
        now = ENQUEUED + 5_000 * (number - 1)
        app.run(pipeline, delivered(number, enqueued=now, delivery_count=1, session_id="a"))
    assert app.sink.listings == listings


@pytest.mark.parametrize(
    ("batch", "is_asked"),
    [
        ([delivered(9, enqueued=ENQUEUED + _HOUR, delivery_count=2)], True),
        ([delivered(9, enqueued=ENQUEUED + _HOUR - 2_000, delivery_count=1, session_id="a")], True),
        ([delivered(9, enqueued=ENQUEUED + _HOUR - 2_000, delivery_count=1)], False),
        ([delivered(9, enqueued=ENQUEUED + _HOUR - 500, delivery_count=1, session_id="a")], False),
        ([delivered(9, enqueued=ENQUEUED - 5 * _HOUR, delivery_count=1)], True),
    ],
    ids=["counted", "session that waited", "queue that waited", "new in a session", "from before the earliest read"],
)
def test_an_instance_that_has_read_reads_again_for_what_another_may_have_had(
    batch: Sequence[bytes], *, is_asked: bool
) -> None:
    app = App(second=OutputThatAccepts())
    pipeline = app.instance()
    app.run(pipeline, delivered(1, delivery_count=1))
    app.clock.advance(_HOUR / 1000)
    listings = app.sink.listings
    app.run(pipeline, *batch)
    assert (app.sink.listings > listings) is is_asked


@pytest.mark.parametrize(
    ("number", "partition", "later", "is_asked"),
    [
        (4, "0", 0, False),
        (5, "0", 0, True),
        (3, "0", 0, True),
        (1, "0", 0, True),
        (4, "0", 60, True),
        (0, "1", 0, True),
    ],
    ids=["next", "gap", "again", "back", "next, after a while", "first of a partition that it never had"],
)
def test_a_partition_is_asked_about_where_it_does_not_go_on(
    number: int, partition: str, later: float, *, is_asked: bool
) -> None:
    app = App(second=OutputThatAccepts())
    app.clock.advance(2 * _HOUR / 1000)
    pipeline = app.instance()
    app.run(pipeline, *[_event(each) for each in (1, 2, 3)], partition="0")
    listings = app.sink.listings
    app.clock.advance(later)
    app.run(pipeline, _event(number), partition=partition)
    assert (app.sink.listings > listings) is is_asked


def _event(number: int) -> bytes:
    return delivered(number, enqueued=ENQUEUED + _HOUR)


def _silent(app: App) -> None:
    app.sink.seconds = 1.0


def _broken(app: App) -> None:
    app.sink.error = TargetUnavailable("journal: the storage is away")


@pytest.mark.parametrize(
    ("damage", "text"), [(_silent, "it did not answer within 0 s"), (_broken, "journal: the storage is away")]
)
def test_a_journal_that_does_not_answer_costs_a_copy_and_no_message(
    damage: Callable[[App], None], text: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "_TIMEOUT_SECONDS", 0.05)
    app = App()
    app.fail(delivered(1, delivery_count=1))
    damage(app)
    pipeline = app.instance()
    app.run(pipeline, delivered(1, delivery_count=2))
    assert app.first.ids("orders") == ["m-1", "m-1"]
    assert caplog.text.count(f"the journal was not read: {text}") == 1
    assert caplog.text.count("copy: targets may get a second copy") == 1
    listings = app.sink.listings
    app.run(pipeline, delivered(2, delivery_count=2))
    assert app.sink.listings == listings, "a journal that is away is asked once a minute"
    app.sink.error, app.sink.seconds = None, 0.0
    app.clock.advance(timedelta(minutes=2).total_seconds())
    app.run(pipeline, delivered(3, delivery_count=2))
    assert app.sink.listings > listings


def test_a_journal_that_cannot_be_read_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    app = App(second=OutputThatAccepts())
    pipeline = app.instance(LogJournal())
    app.run(pipeline, delivered(1, delivery_count=2))
    app.clock.advance(600)
    app.run(pipeline, delivered(1, delivery_count=3))
    assert caplog.text.count("the task has no journal that can be read") == 1


def test_a_message_with_one_target_asks_for_nothing() -> None:
    app = App()
    app.line.task = Line(OutputThatAccepts(), editors=[Editing(lambda message: [message])]).task
    app.run(app.instance(), delivered(1, delivery_count=2))
    assert app.sink.listings == 0
    assert all("identity" not in record for record in app.sink.records("copy", Role.TARGET))
    assert app.line.outcomes() == []
