"""The outcome of each message of a task, and the ids that the task assigns."""

import asyncio
import uuid
from collections import Counter

from shared.amqp.values import int_, string
from shared.amqp.values import uuid as amqp_uuid
from shared.line.routing import Route, Target
from shared.message.arrival import Arrival
from shared.message.loop_prevention import LoopGuard
from shared.message.metadata import deterministic_id
from shared.message.ttl import CLOCK_SKEW, Remaining
from shared.protocols import Outcome, Record
from shared.rules import parse_filter
from tests.fakes import (
    OutputThatAccepts,
    OutputThatRejects,
)
from tests.messages import ENQUEUED, LOCK_MILLISECONDS, delivered
from tests.unit.line.copying import ORIGIN, Editing, Line, texts

MALFORMED = b"\x00\x53\x74\xc1\xff\x02"


def test_a_message_is_sent_unchanged_except_for_its_stamps() -> None:
    output = OutputThatAccepts()
    line = Line(output)
    assert line.run(delivered(7, named={"colour": string("red")}, body=b"hello")) == {Outcome.SENT: 1}
    (message,) = output.messages("orders")
    assert message.body == b"hello"
    assert texts(message) == {
        "colour": "red",
        "repl-path": "west",
        "repl-enqueue-time": "2030-03-17T17:46:40.123Z",
        "repl-sequence": "7",
    }
    assert line.journal.records == [
        Record(
            "copy",
            Arrival(ORIGIN, 7, None, ENQUEUED, ENQUEUED + LOCK_MILLISECONDS, None),
            "m-7",
            Outcome.SENT,
            "east/orders",
            None,
        )
    ]


def test_an_empty_batch_does_nothing() -> None:
    assert Line().run() == Counter()


def test_every_message_of_a_batch_gets_one_outcome() -> None:
    output = OutputThatRejects(lambda message: message.message_id == "m-5")
    routes = [Route(Target(output, "east", "orders"), parse_filter("NOT EXISTS(skip) OR skip <> 1"))]
    line = Line(output, routes=routes, loop_guard=LoopGuard(), time_to_live=Remaining())
    line.clock.advance(30)
    counts = line.run(
        delivered(1),
        delivered(2, named={"skip": int_(1)}),
        delivered(3, named={"repl-path": string("east")}),
        delivered(4, time_to_live=20_000),
        delivered(5),
        MALFORMED,
        delivered(6),
    )
    assert counts == {
        Outcome.SENT: 2,
        Outcome.FILTERED: 1,
        Outcome.LOOPED: 1,
        Outcome.EXPIRED: 1,
        Outcome.REJECTED: 2,
    }
    assert output.ids("orders") == ["m-1", "m-6"]
    assert line.outcomes() == [
        Outcome.SENT,
        Outcome.FILTERED,
        Outcome.LOOPED,
        Outcome.EXPIRED,
        Outcome.REJECTED,
        Outcome.REJECTED,
        Outcome.SENT,
    ]
    ids = [record.message_id for record in line.journal.records]
    assert ids[:4] == ["m-1", "m-2", "m-3", "m-4"]


def test_a_message_that_an_editor_withholds_is_filtered() -> None:
    output = OutputThatAccepts()
    line = Line(output, editors=[Editing(lambda _: ())])
    assert line.run(delivered(1)) == {Outcome.FILTERED: 1}
    assert output.accepted == {}
    assert line.journal.records[0].message_id == "m-1"


def test_a_message_is_not_sent_to_a_site_that_it_has_left() -> None:
    output = OutputThatAccepts()
    line = Line(output, loop_guard=LoopGuard())
    assert line.run(delivered(1, named={"repl-path": string("north;east")})) == {Outcome.LOOPED: 1}
    assert output.accepted == {}
    assert line.journal.records[0].reason == "site east is on its path north;east"


def test_hops_are_counted_up_to_the_limit_of_the_task() -> None:
    line = Line(loop_guard=LoopGuard(max_hops=3))
    assert line.run(delivered(1, named={"repl-path": string("a;b")})) == {Outcome.SENT: 1}
    assert line.run(delivered(2, named={"repl-path": string("a;b;c")})) == {Outcome.LOOPED: 1}


def test_without_loop_prevention_a_message_may_return() -> None:
    assert Line().run(delivered(1, named={"repl-path": string("east")})) == {Outcome.SENT: 1}


def test_message_with_expired_time_to_live_is_withheld() -> None:
    line = Line(time_to_live=Remaining())
    line.clock.advance(10 + CLOCK_SKEW.total_seconds())
    assert line.run(delivered(1, time_to_live=10_000)) == {Outcome.EXPIRED: 1}
    assert line.run(delivered(2, time_to_live=10_001)) == {Outcome.SENT: 1}


def test_a_message_without_an_id_gets_the_same_one_at_every_delivery_and_its_neighbours_another() -> None:
    output = OutputThatAccepts()
    first, again = Line(output), Line(output)
    first.run(delivered(1, message_id=None), delivered(2, message_id=None))
    again.run(delivered(1, message_id=None, delivery_count=3))
    one, two, one_again = output.ids("orders")
    assert one is not None
    assert one == one_again != two
    assert one == deterministic_id(Arrival(ORIGIN, 1, None, ENQUEUED, None, None))


def test_ids_differ_by_partition() -> None:
    output = OutputThatAccepts()
    line = Line(output)
    for partition in ("0", "1"):
        asyncio.run(line.pipeline.run([delivered(1, message_id=None)], partition))
    assert len(set(output.ids("orders"))) == 2


def test_a_message_id_that_is_not_text_is_not_changed() -> None:
    output = OutputThatAccepts()
    identity = amqp_uuid(uuid.UUID(int=5))
    Line(output).run(delivered(1, message_id=identity))
    (message,) = output.messages("orders")
    assert message.message_id == identity
