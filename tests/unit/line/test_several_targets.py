"""Messages with several targets: each target has its result, its retries and its order."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import pytest

from shared.amqp.values import string
from shared.errors import MessageRejected, TargetUnavailable
from shared.line.accepted_sends import AcceptedSends
from shared.line.pipeline import Pipeline
from shared.line.rejection import PART, SOURCE, TARGET, TASK
from shared.line.routing import Route, Target
from shared.message.arrival import Arrival
from shared.message.loop_prevention import LoopGuard
from shared.message.message import Message
from shared.message.metadata import PATH
from shared.message.ttl import Remaining
from shared.protocols import EditedTogether, Outcome
from shared.rules.rule import parse_action, parse_filter
from tests.fakes import OutputThatAccepts, OutputThatFailsOnce, OutputThatIsDown, OutputThatRejects, sleep_by
from tests.messages import delivered
from tests.unit.line.copying import Editing, Line, halves, texts

SITES = ("east", "north", "south")


def to_several(*outputs: OutputThatAccepts, fit: Callable[[Message], None] | None = None) -> list[Route]:
    """Return a route to an entity at each of the sites; *fit* is that of the last."""
    targets = [Target(output, site, "orders") for output, site in zip(outputs, SITES, strict=True)]
    if fit is not None:
        targets[-1] = targets[-1]._replace(fit=fit)
    return [Route(targets[0], others=targets[1:])]


def three(*outputs: OutputThatAccepts) -> list[OutputThatAccepts]:
    return [*outputs, *(OutputThatAccepts() for _ in SITES[len(outputs) :])]


def replayed(reject: Message, number: int) -> bytes:
    return delivered(number, named=dict(reject.application_properties()), body=reject.body or b"")


def too_large(_: Message) -> None:
    raise MessageRejected("MessageSizeExceeded", "south/orders: the text has 90000 bytes, expected at most 65536")


def test_the_copies_for_targets_of_one_kind_are_the_same_bytes() -> None:
    outputs = three()
    Line(routes=to_several(*outputs, fit=lambda message: message.set_properties({"own": string("1")}))).run(
        delivered(1)
    )
    first, second, own = (output.accepted["orders"][0].content for output in outputs)
    assert first is second
    assert texts(outputs[2].messages("orders")[0])["own"] == "1"
    assert "own" not in texts(outputs[0].messages("orders")[0])
    assert own != first


def test_the_others_do_not_wait_while_one_target_is_tried_again() -> None:
    outputs = three(OutputThatAccepts(), OutputThatFailsOnce())
    line = Line(routes=to_several(*outputs))
    assert line.run(delivered(1)) == {Outcome.SENT: 3}
    assert [output.calls for output in outputs] == [[1], [1, 1], [1]]


def test_a_message_that_one_target_refuses_is_rejected_for_it_alone_and_a_replay_sends_it_there_alone() -> None:
    outputs = three(OutputThatAccepts(), OutputThatRejects(lambda _: True))
    line = Line(routes=to_several(*outputs))
    assert line.run(delivered(1)) == {Outcome.SENT: 2, Outcome.REJECTED: 1}
    (reject,) = line.rejected()
    assert texts(reject)[TARGET] == "north/orders"
    assert PART not in texts(reject)
    assert line.journal.records[1].reason == "for north/orders: TargetRefusedMessage: target/entity: no"
    outputs = three()
    again = Line(routes=to_several(*outputs))
    assert again.run(replayed(reject, 2)) == {Outcome.SENT: 1, Outcome.FILTERED: 2}
    assert [output.ids("orders") for output in outputs] == [[], ["m-2"], []]
    assert again.journal.records[0].reason == "for east/orders: repl-reject-target asks for north/orders only"


def test_a_message_that_does_not_fit_one_target_reaches_the_others() -> None:
    outputs = three()
    line = Line(routes=to_several(*outputs, fit=too_large))
    assert line.run(delivered(1)) == {Outcome.SENT: 2, Outcome.REJECTED: 1}
    assert [output.ids("orders") for output in outputs] == [["m-1"], ["m-1"], []]
    (reject,) = line.rejected()
    assert texts(reject)[TARGET] == "south/orders"


def test_a_replay_that_asks_for_a_target_that_the_route_no_longer_has_is_rejected() -> None:
    outputs = three()
    line = Line(routes=to_several(*outputs))
    stamps = {TASK: string("copy"), SOURCE: string("west/orders"), TARGET: string("moon/orders")}
    assert line.run(delivered(1, named=stamps)) == {Outcome.REJECTED: 1}
    assert not any(output.accepted for output in outputs)
    (reject,) = line.rejected()
    assert texts(reject)[TARGET] == "moon/orders", "a corrected task still sends only what is missing"


@pytest.mark.parametrize("forged", [{TASK: "other"}, {SOURCE: "east/orders"}, {TARGET: ""}])
def test_a_producer_cannot_withhold_copies_with_stamps_of_another_task(forged: dict[str, str]) -> None:
    stamps = {TASK: "copy", SOURCE: "west/orders", TARGET: "north/orders"} | forged
    line = Line(routes=to_several(*three()))
    counts = line.run(delivered(1, named={name: string(text) for name, text in stamps.items()}))
    assert counts == ({Outcome.REJECTED: 1} if TARGET in forged else {Outcome.SENT: 3})


def test_loop_prevention_withholds_only_the_copy_for_a_site_that_was_visited() -> None:
    outputs = three()
    line = Line(routes=to_several(*outputs), loop_guard=LoopGuard(4))
    assert line.run(delivered(1, named={PATH: string("north")})) == {Outcome.SENT: 2, Outcome.LOOPED: 1}
    assert [output.ids("orders") for output in outputs] == [["m-1"], [], ["m-1"]]


def test_a_message_that_expires_while_one_target_is_away_expires_for_that_one() -> None:
    down = OutputThatIsDown()
    line = Line(routes=to_several(*three(OutputThatAccepts(), down)), time_to_live=Remaining())
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1, time_to_live=120_000))
    line.clock.advance(timedelta(minutes=5).total_seconds())
    counts = line.run(delivered(1, time_to_live=120_000, delivery_count=1))
    assert counts == {Outcome.SENT: 2, Outcome.EXPIRED: 1}
    assert line.journal.records[-2].reason == "for north/orders: it expired before it could be sent"


def test_the_route_decides_how_many_targets_a_message_has() -> None:
    express, archive, orders = three()
    routes = [
        Route(
            Target(express, "east", "express"),
            parse_filter("priority > 5"),
            parse_action("SET fast = 1"),
            [Target(archive, "east", "archive")],
        ),
        Route(Target(orders, "east", "orders")),
    ]
    line = Line(routes=routes)
    assert line.run(delivered(1, named={"priority": string("x")}), delivered(2)) == {Outcome.SENT: 2}
    assert [record.part for record in line.journal.records] == [None, None]
    assert orders.ids("orders") == ["m-1", "m-2"]


def test_a_refused_part_names_itself_and_its_target() -> None:
    refusing = OutputThatRejects(lambda message: message.message_id == "half-1")
    line = Line(routes=to_several(*three(OutputThatAccepts(), refusing)), editors=[Editing(halves)])
    assert line.run(delivered(1)) == {Outcome.SENT: 5, Outcome.REJECTED: 1}
    (reject,) = line.rejected()
    assert (texts(reject)[PART], texts(reject)[TARGET]) == ("1", "north/orders")
    outputs = three()
    again = Line(routes=to_several(*outputs), editors=[Editing(halves)])
    # Of the other part no copy is made: it has no route.
    assert again.run(replayed(reject, 2)) == {Outcome.SENT: 1, Outcome.FILTERED: 3}
    assert [output.ids("orders") for output in outputs] == [[], ["half-1"], []]


def test_a_message_is_dead_lettered_once_its_other_targets_have_it() -> None:
    down = OutputThatFailsOnce()
    outputs = three(OutputThatRejects(lambda _: True), down)
    line = Line(routes=to_several(*outputs), has_rejects=False, has_locks=True)
    settlement = line.task.settlement
    settlement.error = None  # type: ignore[union-attr]  # the fake's
    assert line.run(delivered(1)) == {Outcome.SENT: 2, Outcome.REJECTED: 1}
    ((_, reason, description),) = settlement.dead  # type: ignore[union-attr]  # the fake's
    assert (reason, description) == ("TargetRefusedMessage", "copy, sent, east/orders: target/entity: no")


def test_a_message_is_not_dead_lettered_while_another_target_is_away() -> None:
    outputs = three(OutputThatRejects(lambda _: True), OutputThatIsDown())
    line = Line(routes=to_several(*outputs), has_rejects=False, has_locks=True)
    settlement = line.task.settlement
    settlement.error = None  # type: ignore[union-attr]  # the fake's
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1))
    assert settlement.dead == []  # type: ignore[union-attr]  # the fake's
    # What one target has is on record while another is away.
    assert line.outcomes() == [Outcome.SENT, Outcome.RETRY, Outcome.RETRY]


class _Remembering:
    """A batch editor that keeps what it learns."""

    name = "remembering"
    joins = False

    def __init__(self) -> None:
        self.settled_as: list[Outcome] = []

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        assert timeout_seconds > 0
        return [(message,) for message in messages]

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        assert timeout_seconds > 0
        self.settled_as += [outcome for _, outcome in outcomes]


def test_an_editor_learns_that_a_message_is_sent_when_all_targets_have_it() -> None:
    down, editor = OutputThatIsDown(), _Remembering()
    line = Line(routes=to_several(*three(OutputThatAccepts(), down)), editors=[editor])  # type: ignore[list-item]
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1))
    assert editor.settled_as == []
    down.put_up()
    line.run(delivered(1, delivery_count=1))
    assert editor.settled_as == [Outcome.SENT]


def test_the_memory_distinguishes_targets_by_their_names() -> None:
    accepted = AcceptedSends()
    first = Line(routes=to_several(*three(OutputThatAccepts(), OutputThatIsDown())))
    run = partial(Pipeline, journal=first.journal, clock=first.clock, sleep=sleep_by(first.clock), accepted=accepted)
    with pytest.raises(TargetUnavailable):
        asyncio.run(run(first.task).run([delivered(1)]))
    # The route has another first target now: what was sent to another place counts for no other.
    outputs = three()
    targets = [Target(output, site, "orders") for output, site in zip(outputs, ("moon", "east", "north"), strict=True)]
    second = Line(routes=[Route(targets[0], others=targets[1:])])
    asyncio.run(run(second.task).run([delivered(1, delivery_count=1)]))
    assert [output.ids("orders") for output in outputs] == [["m-1"], [], ["m-1"]]
