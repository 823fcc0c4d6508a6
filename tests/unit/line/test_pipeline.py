import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from shared.amqp.sections import Sections, data
from shared.amqp.values import int_, string
from shared.amqp.values import uuid as amqp_uuid
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.deadline import DEFAULT_HOLD, LOCK_MARGIN_SECONDS, SHORTEST_ATTEMPT_SECONDS
from shared.line.pipeline import Pipeline
from shared.line.rejection import DESCRIPTION, REASON, SEQUENCE, SOURCE, STAGE, TASK, WRAPPED_CONTENT_TYPE
from shared.line.routing import Route, Router, Target
from shared.line.sending import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS
from shared.line.task import Task
from shared.message.arrival import Arrival, Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.message import Message
from shared.message.metadata import deterministic_id
from shared.message.ttl import CLOCK_SKEW, Keep, Remaining, TimeToLive
from shared.protocols import Editor, Outcome, Outgoing, Output, Record
from shared.rules import parse_filter
from tests.fakes import (
    JournalInMemory,
    OutputThatAccepts,
    OutputThatFailsOnce,
    OutputThatIsDown,
    OutputThatRejects,
    clock_at_delivery,
    sleep_by,
)
from tests.messages import ENQUEUED, LOCK_MILLISECONDS, delivered

ORIGIN = Origin("west", "orders")
MALFORMED = b"\x00\x53\x74\xc1\xff\x02"


class Line:
    """A pipeline from west/orders to east/orders with rejects at west/rejected, in virtual time."""

    def __init__(
        self,
        output: Output | None = None,
        *,
        rejects: Output | None = None,
        has_rejects: bool = True,
        routes: Sequence[Route] | None = None,
        editors: Sequence[Editor] = (),
        time_to_live: TimeToLive | None = None,
        loop_guard: LoopGuard | None = None,
    ) -> None:
        self.output = output or OutputThatAccepts()
        self.rejects = rejects or OutputThatAccepts()
        self.journal = JournalInMemory()
        self.clock = clock_at_delivery()
        self.pauses: list[float] = []
        task = Task(
            "copy",
            ORIGIN,
            editors,
            Router(routes or [Route(Target(self.output, "east", "orders"))]),
            Target(self.rejects, "west", "rejected") if has_rejects else None,
            time_to_live or Keep(),
            loop_guard,
        )
        self.pipeline = Pipeline(task, self.journal, self.clock, sleep_by(self.clock, self.pauses))

    def run(self, *batch: bytes) -> Counter[Outcome]:
        return asyncio.run(self.pipeline.run(batch))

    def outcomes(self) -> list[Outcome]:
        return [record.outcome for record in self.journal.records]

    def rejected(self) -> list[Message]:
        assert isinstance(self.rejects, OutputThatAccepts)
        return self.rejects.messages("rejected")


class Editing:
    """An editor made of a function."""

    name = "editing"

    def __init__(self, edit: Callable[[Message], Sequence[Message]]) -> None:
        self._edit = edit

    def edit(self, message: Message) -> Sequence[Message]:
        return self._edit(message)


def texts(message: Message) -> dict[str, object]:
    return {name: value.payload for name, value in message.application_properties()}


# Outcomes


def test_a_message_is_sent_as_it_came_with_its_stamps() -> None:
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


def test_an_empty_batch_is_no_work() -> None:
    assert Line().run() == Counter()


def test_every_message_of_a_batch_has_one_outcome() -> None:
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


def test_an_editor_that_drops_filters() -> None:
    output = OutputThatAccepts()
    line = Line(output, editors=[Editing(lambda _: ())])
    assert line.run(delivered(1)) == {Outcome.FILTERED: 1}
    assert output.accepted == {}
    assert line.journal.records[0].message_id == "m-1"


def test_an_editor_that_multiplies_sends_each_part_once_over_redeliveries() -> None:
    def three(message: Message) -> list[Message]:
        parts = [message.copy() for _ in range(3)]
        for number, part in enumerate(parts):
            part.message_id = string(f"part-{number}")
        return parts

    output = OutputThatFailsOnce(after=2, error=TargetUnavailable("away"))
    line = Line(output, editors=[Editing(three)])
    assert line.run(delivered(1)) == {Outcome.SENT: 3}
    assert line.run(delivered(1, delivery_count=1)) == {Outcome.SENT: 3}
    assert output.ids("orders") == ["part-0", "part-1", "part-2"]


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


def test_without_a_guard_a_message_may_return() -> None:
    assert Line().run(delivered(1, named={"repl-path": string("east")})) == {Outcome.SENT: 1}


def test_a_life_that_is_over_expires() -> None:
    line = Line(time_to_live=Remaining())
    line.clock.advance(10 + CLOCK_SKEW.total_seconds())
    assert line.run(delivered(1, time_to_live=10_000)) == {Outcome.EXPIRED: 1}
    assert line.run(delivered(2, time_to_live=10_001)) == {Outcome.SENT: 1}


# Identity


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


def test_an_id_that_is_no_text_stays() -> None:
    output = OutputThatAccepts()
    identity = amqp_uuid(uuid.UUID(int=5))
    Line(output).run(delivered(1, message_id=identity))
    (message,) = output.messages("orders")
    assert message.message_id == identity


# Redelivery


def test_a_batch_that_failed_half_way_is_redelivered_and_its_accepted_half_not_sent_again() -> None:
    output = OutputThatFailsOnce(after=3, error=TargetUnavailable("away", retry_after=timedelta(minutes=10)))
    line = Line(output)
    with pytest.raises(TargetUnavailable):
        line.run(*[delivered(number) for number in range(1, 6)])
    assert output.ids("orders") == ["m-1", "m-2", "m-3"]
    assert line.outcomes() == [Outcome.SENT] * 3 + [Outcome.RETRY] * 2
    counts = line.run(*[delivered(number, delivery_count=1) for number in range(1, 6)])
    assert counts == {Outcome.SENT: 5}
    assert output.ids("orders") == ["m-1", "m-2", "m-3", "m-4", "m-5"]


def test_within_a_run_the_accepted_half_is_not_sent_again() -> None:
    output = OutputThatFailsOnce(after=3)
    line = Line(output)
    line.run(*[delivered(number) for number in range(1, 6)])
    assert output.ids("orders") == ["m-1", "m-2", "m-3", "m-4", "m-5"]
    assert output.calls == [5, 2]


def test_a_message_of_a_recreated_entity_is_another() -> None:
    output = OutputThatAccepts()
    line = Line(output)
    line.run(delivered(1, message_id="old"))
    line.run(delivered(1, message_id="new", enqueued=ENQUEUED + 1))
    assert output.ids("orders") == ["old", "new"]


def test_a_message_without_a_sequence_number_is_sent_at_every_delivery() -> None:
    output = OutputThatAccepts()
    line = Line(output)
    line.run(delivered(None, message_id="a"))
    line.run(delivered(None, message_id="a"))
    assert output.ids("orders") == ["a", "a"]


def test_what_was_rejected_is_not_rejected_again_at_a_redelivery() -> None:
    def refuse(message: Message) -> list[Message]:
        if message.arrival.sequence_number == 1:
            raise MessageRejected("Poison", "it is poison")
        return [message]

    output = OutputThatIsDown()
    line = Line(output, editors=[Editing(refuse)])
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1), delivered(2))
    output.put_up()
    assert line.run(delivered(1), delivered(2)) == {Outcome.REJECTED: 1, Outcome.SENT: 1}
    assert len(line.rejected()) == 1


# Rejects


def test_a_malformed_message_goes_to_rejects_wrapped() -> None:
    line = Line()
    assert line.run(MALFORMED) == {Outcome.REJECTED: 1}
    (message,) = line.rejected()
    assert message.body == MALFORMED
    assert message.content_type == WRAPPED_CONTENT_TYPE
    assert texts(message)[REASON] == "MalformedMessage"
    assert texts(message)[TASK] == "copy"


def test_malformed_sections_are_found_wherever_they_stand() -> None:
    bad_map = b"\xc1\x05\x04\xa1\x01a\x41"  # two pairs announced, one and a half there
    for sections in (
        Sections(header=b"\x00\x53\x70\xc0\x02\x01\x70"),
        Sections(message_annotations=b"\x00\x53\x72" + bad_map),
        Sections(properties=b"\x00\x53\x73\xc0\x03\x05\x40\x40"),
        Sections(application_properties=b"\x00\x53\x74\xc1\x04\x01\xa1\x01a"),
        Sections(properties=b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff"),
    ):
        sections.body = data(b"x")
        line = Line()
        assert line.run(sections.encode(), delivered(2)) == {Outcome.REJECTED: 1, Outcome.SENT: 1}, sections
        assert len(line.rejected()) == 1


def test_a_message_that_its_target_refuses_goes_to_rejects_as_it_came() -> None:
    output = OutputThatRejects(lambda message: message.message_id == "m-2")
    line = Line(output)
    line.run(delivered(1), delivered(2, named={"colour": string("red")}, body=b"two"), delivered(3))
    assert output.ids("orders") == ["m-1", "m-3"]
    (message,) = line.rejected()
    assert message.body == b"two"
    assert texts(message) == {
        "colour": "red",
        REASON: "TargetRefusedMessage",
        DESCRIPTION: "target/entity: no",
        STAGE: "sent",
        TASK: "copy",
        SOURCE: "west/orders",
        SEQUENCE: "2",
    }
    assert line.journal.records[1].target == "west/rejected"


def test_what_rejects_refuses_as_it_is_goes_there_wrapped() -> None:
    rejects = OutputThatRejects(lambda message: message.message_id == "m-1")
    line = Line(OutputThatRejects(lambda _: True), rejects=rejects)
    content = delivered(1)
    assert line.run(content) == {Outcome.REJECTED: 1}
    (message,) = line.rejected()
    assert message.body == content
    assert message.content_type == WRAPPED_CONTENT_TYPE


def test_what_rejects_takes_in_no_form_stays_at_the_source() -> None:
    line = Line(OutputThatRejects(lambda _: True), rejects=OutputThatRejects(lambda _: True))
    with pytest.raises(TargetRefused, match="west/rejected"):
        line.run(delivered(1))
    assert line.outcomes() == [Outcome.RETRY]


def test_while_rejects_is_down_nothing_is_lost() -> None:
    output = OutputThatRejects(lambda message: message.message_id == "m-1")
    rejects = OutputThatIsDown()
    line = Line(output, rejects=rejects)
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1), delivered(2))
    assert line.outcomes() == [Outcome.RETRY, Outcome.SENT]
    rejects.put_up()
    assert line.run(delivered(1), delivered(2)) == {Outcome.REJECTED: 1, Outcome.SENT: 1}
    assert output.ids("orders") == ["m-2"]
    assert rejects.ids("rejected") == ["m-1"]


class RejectsOneAndGoesAway(OutputThatAccepts):
    def answer(self, message: Outgoing, /) -> BuswayError | None:
        return {
            "m-1": MessageRejected("Poison", "no"),
            "m-2": None,
            "m-3": TargetUnavailable("away", retry_after=timedelta(hours=1)),
        }[str(message.message_id)]


def test_rejected_messages_reach_rejects_although_the_target_is_unavailable_and_the_time_is_over() -> None:
    output = RejectsOneAndGoesAway()
    line = Line(output)
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1), delivered(2), delivered(3))
    assert line.outcomes() == [Outcome.REJECTED, Outcome.SENT, Outcome.RETRY]
    assert len(line.rejected()) == 1


def test_without_rejects_a_message_at_fault_stays_at_the_source_and_its_neighbours_are_sent_once() -> None:
    output = OutputThatRejects(lambda message: message.message_id == "m-2")
    line = Line(output, has_rejects=False)
    for delivery_count in range(3):
        with pytest.raises(MessageRejected):
            line.run(*[delivered(number, delivery_count=delivery_count) for number in (1, 2, 3)])
    assert output.ids("orders") == ["m-1", "m-3"]


def test_no_error_of_the_pipeline_tells_a_body() -> None:
    line = Line(OutputThatRejects(lambda _: True), has_rejects=False)
    with pytest.raises(MessageRejected) as caught:
        line.run(delivered(1, body=b"secret", named={"key": string("secret")}))
    assert "secret" not in str(caught.value)


# Order and outages


def test_order_is_kept_over_an_outage() -> None:
    output = OutputThatFailsOnce(after=4)
    line = Line(output)
    line.run(*[delivered(number, session_id="ab"[number % 2]) for number in range(10)])
    by_session: dict[str | None, list[str | None]] = {}
    for message in output.accepted["orders"]:
        by_session.setdefault(message.session_id, []).append(message.message_id)
    assert by_session == {
        "a": ["m-0", "m-2", "m-4", "m-6", "m-8"],
        "b": ["m-1", "m-3", "m-5", "m-7", "m-9"],
    }


def test_one_target_that_is_down_does_not_hold_up_the_other() -> None:
    up, down = OutputThatAccepts(), OutputThatIsDown()
    routes = [
        Route(Target(down, "north", "orders"), parse_filter("side = 1")),
        Route(Target(up, "east", "orders")),
    ]
    line = Line(up, routes=routes)
    with pytest.raises(TargetUnavailable):
        line.run(*[delivered(number, named={"side": int_(number % 2)}) for number in range(6)])
    assert up.ids("orders") == ["m-0", "m-2", "m-4"]
    down.put_up()
    line.run(*[delivered(number, named={"side": int_(number % 2)}) for number in range(6)])
    assert up.ids("orders") == ["m-0", "m-2", "m-4"]
    assert down.ids("orders") == ["m-1", "m-3", "m-5"]


def test_waiting_stays_within_the_shortest_lock_of_the_batch() -> None:
    output = OutputThatIsDown()
    line = Line(output)
    short = ENQUEUED + 25_000
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1), delivered(2, locked_until=short), delivered(3))
    assert line.pauses[:3] == pytest.approx([FIRST_WAIT_SECONDS, 2 * FIRST_WAIT_SECONDS, 4 * FIRST_WAIT_SECONDS])
    budget = 25 * 3 / 4
    assert budget / 2 < line.clock.monotonic() <= budget - SHORTEST_ATTEMPT_SECONDS
    assert max(output.timeouts) <= budget
    assert output.timeouts[-1] >= SHORTEST_ATTEMPT_SECONDS


def test_of_a_long_lock_no_more_than_the_margin_is_left() -> None:
    line = Line(OutputThatIsDown())
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1, locked_until=ENQUEUED + 300_000))
    assert 0 < 300 - LOCK_MARGIN_SECONDS - line.clock.monotonic() < LONGEST_WAIT_SECONDS + SHORTEST_ATTEMPT_SECONDS


def test_a_batch_without_locks_is_held_for_the_whole_time_of_its_task() -> None:
    line = Line(OutputThatIsDown())
    with pytest.raises(TargetUnavailable):
        line.run(delivered(None))
    assert 0 <= DEFAULT_HOLD.total_seconds() - line.clock.monotonic() < LONGEST_WAIT_SECONDS + SHORTEST_ATTEMPT_SECONDS


def test_a_lock_that_is_nearly_over_allows_one_attempt() -> None:
    output = OutputThatIsDown()
    line = Line(output)
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1, locked_until=ENQUEUED + 2_000))
    assert output.calls == [1]
    assert line.pauses == []


def test_the_wait_that_a_target_asks_for_is_kept() -> None:
    output = OutputThatFailsOnce(error=TargetUnavailable("busy", retry_after=timedelta(seconds=4)))
    line = Line(output)
    assert line.run(delivered(1)) == {Outcome.SENT: 1}
    assert line.pauses == [4.0]


def test_a_target_that_refuses_is_reported_as_such() -> None:
    line = Line(OutputThatIsDown(error=TargetRefused("east/orders: no right to send")))
    with pytest.raises(TargetRefused, match="no right to send"):
        line.run(delivered(1))
    assert line.outcomes() == [Outcome.RETRY]


def test_two_routes_to_one_target_keep_the_order_of_the_batch() -> None:
    output = OutputThatAccepts()
    routes = [
        Route(Target(output, "east", "orders"), parse_filter("priority > 5")),
        Route(Target(output, "east", "orders")),
    ]
    line = Line(output, routes=routes)
    line.run(delivered(1), delivered(2, named={"priority": int_(9)}), delivered(3))
    assert output.ids("orders") == ["m-1", "m-2", "m-3"]
