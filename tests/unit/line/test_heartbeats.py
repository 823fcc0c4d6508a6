"""What a task does with the heartbeats among the messages of a batch."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from shared.amqp.values import string
from shared.line.heartbeats import Heartbeats
from shared.line.item import Item, Original
from shared.line.pipeline import Pipeline
from shared.line.routing import Target
from shared.message.arrival import Arrival
from shared.message.heartbeat import BODY, Heartbeat, heartbeat_in
from shared.message.message import Message
from shared.protocols import BatchReport, Outcome, Withheld
from tests.fakes import OutputThatAccepts, OutputThatIsDown
from tests.messages import ENQUEUED, ORIGIN, delivered
from tests.unit.line.copying import Line


class Recorded:
    """The results of heartbeats."""

    def __init__(self) -> None:
        self.results: list[tuple[int, int, int | None, str | None]] = []

    def heartbeat(self, route: int, sent: int, milliseconds: int | None, refusal: str | None) -> None:
        self.results.append((route, sent, milliseconds, refusal))


class Refusing:
    """An editor that withholds everything."""

    name = "refusing"

    def edit(self, message: Message) -> Withheld:  # noqa: ARG002 - the editor's interface
        return Withheld("refused")


class Reports:
    """Telemetry that keeps the reports of batches."""

    def __init__(self, line: Line) -> None:
        self.batches: list[BatchReport] = []
        self.sizes: list[int] = []
        self.recorded = Recorded()
        self.heartbeats = OutputThatAccepts()
        task = line.pipeline._task
        targets = [Target(self.heartbeats, "east", "orders"), Target(OutputThatIsDown(), "east", "beside")]
        self.pipeline = Pipeline(
            replace(task, heartbeat_targets=targets),
            line.journal,
            line.clock,
            telemetry=self,  # type: ignore[arg-type] # only what a batch needs
            arrivals=self.recorded,
        )

    def in_hand(self, size: int, oldest: int | None) -> Any:  # noqa: ARG002 - telemetry's interface
        self.sizes.append(size)
        return nullcontext()

    def outage(self, place: str, error: object) -> None:
        pass

    def batch(self, report: BatchReport) -> None:
        self.batches.append(report)

    def run(self, *batch: bytes) -> Any:
        return asyncio.run(self.pipeline.run(batch))


def heartbeat(number: int, task: str = "copy", route: int = 0, sent: int = ENQUEUED - 500, body: bytes = BODY) -> bytes:
    """Return one as the source delivers it."""
    named = {"busway-heartbeat": string(task), "replication": string("1")}
    return delivered(number, named=named, body=body, message_id=f"busway-heartbeat-{route}-{sent}-0a1b2c3d")


def test_a_heartbeat_is_sent_on_and_counts_neither_as_a_message_nor_as_sent() -> None:
    line = Line()
    reports = Reports(line)
    assert reports.run(delivered(1), heartbeat(2)) == {Outcome.SENT: 1, Outcome.FILTERED: 1}
    (sent,) = reports.heartbeats.messages("orders")
    assert heartbeat_in(sent) == Heartbeat("copy", 0, ENQUEUED - 500)
    assert sent.application_property("repl-path") == string("west")
    assert sent.application_property("replication") is None
    assert reports.recorded.results == [(0, ENQUEUED - 500, 0, None)]
    (batch,) = reports.batches
    assert (batch.size, len(batch.messages), len(batch.heartbeats)) == (1, 1, 1)
    assert reports.sizes == [1]
    reasons = [record.reason for record in line.journal.records if record.outcome is Outcome.FILTERED]
    assert reasons == ["a heartbeat of copy"]


def test_a_heartbeat_passes_no_editor() -> None:
    reports = Reports(Line(editors=[Refusing()]))
    reports.run(heartbeat(1))
    assert len(reports.heartbeats.messages("orders")) == 1
    assert reports.batches[0].has_only_heartbeats


def test_a_target_that_is_down_neither_holds_the_batch_nor_leaves_the_heartbeat_at_its_source() -> None:
    line = Line()
    reports = Reports(line)
    assert reports.run(heartbeat(1, route=1), delivered(2)) == {Outcome.SENT: 1, Outcome.FILTERED: 1}
    ((route, _, milliseconds, refusal),) = reports.recorded.results
    assert (route, milliseconds) == (1, None)
    assert refusal


class Silent(OutputThatAccepts):
    """An output that never answers."""

    async def send(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()


def test_a_target_that_does_not_answer_is_given_up_soon() -> None:
    line, recorded = Line(), Recorded()
    targets = [Target(Silent(), "east", "orders")]
    heartbeats = Heartbeats("copy", targets, recorded, line.clock, longest_seconds=0.05)
    item = Item(Original(b"", Arrival(ORIGIN), 0))
    asyncio.run(heartbeats.send({item: Heartbeat("copy", 0, 17)}))
    assert recorded.results == [(0, 17, None, "east/orders: does not answer")]


@pytest.mark.parametrize("other", [heartbeat(1, task="another"), heartbeat(1, route=2)])
def test_a_heartbeat_of_another_task_or_route_ends_here(other: bytes) -> None:
    reports = Reports(Line())
    assert reports.run(other) == {Outcome.FILTERED: 1}
    assert reports.recorded.results == []
    assert reports.heartbeats.accepted == {}


def test_a_task_without_heartbeats_lets_none_through() -> None:
    line = Line()
    assert line.run(heartbeat(1)) == {Outcome.FILTERED: 1}


@pytest.mark.parametrize(
    "content",
    [
        heartbeat(1, body=b"an order"),
        delivered(1, named={"busway-heartbeat": string("copy")}, body=BODY),
        delivered(1, named={"busway-heartbeat-x": string("copy")}, body=BODY, message_id="busway-heartbeat-0-1-a"),
        delivered(1, named={"busway-heartbeat": string("copy")}, body=BODY, message_id="busway-heartbeat-x-1-a"),
    ],
)
def test_a_message_of_an_application_with_the_mark_is_a_message(content: bytes) -> None:
    assert Line().run(content) == {Outcome.SENT: 1}


def test_a_heartbeat_in_the_batch_twice_is_sent_once() -> None:
    reports = Reports(Line())
    assert reports.run(heartbeat(1), heartbeat(1)) == {Outcome.FILTERED: 2}
    assert len(reports.recorded.results) == 1


def test_what_is_sent_to_the_source_is_what_the_line_recognizes() -> None:
    sent = Heartbeat("copy", 3, 1_700_000_000_000)
    for message in (sent.to_source(has_session=True), sent.to_target(Arrival(ORIGIN))):
        assert heartbeat_in(Message.received(message.encode(), ORIGIN)) == sent
    assert sent.to_source(has_session=False).session_id is None
    assert sent.to_source(has_session=True).time_to_live is None
    assert sent.to_target(Arrival(ORIGIN)).time_to_live == 600_000
    assert sent.to_target(Arrival(ORIGIN._replace(partition="0"))).session_id is None


def test_of_a_flood_of_heartbeats_one_for_each_route_is_sent_on() -> None:
    reports = Reports(Line())
    flood = [heartbeat(number, route=number % 2, sent=number) for number in range(1, 101)]
    assert reports.run(*flood, delivered(101)) == {Outcome.FILTERED: 100, Outcome.SENT: 1}
    assert [(route, sent) for route, sent, *_ in reports.recorded.results] == [(1, 99), (0, 100)]


def test_a_heartbeat_that_is_delivered_by_itself_is_released() -> None:
    reports, released = Reports(Line()), list[int]()

    async def release(positions: Sequence[int]) -> None:
        released.extend(positions)

    error = asyncio.run(reports.pipeline.run_each([heartbeat(1), delivered(2)], [b"a" * 16, b"b" * 16], release))
    assert (error, sorted(released)) == (None, [0, 1])
    assert len(reports.recorded.results) == 1
