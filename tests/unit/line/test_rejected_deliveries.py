"""Messages at fault among others: what is dead-lettered or rejected, what is sent, and when the task stops."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from shared.amqp.values import string
from shared.errors import BuswayError, MessageRejected, TargetRefused
from shared.line.rejection import REASON
from shared.protocols import Outcome, Outgoing
from tests.fakes import (
    OutputThatAccepts,
    OutputThatIsDown,
    OutputThatRejects,
)
from tests.messages import delivered
from tests.unit.line.virtual_line import Line, token

# Invalid and refused messages


def at_fault(message: Outgoing) -> bool:
    return message.message_id == "m-2"


def test_the_lock_of_a_dead_lettered_message_is_not_renewed() -> None:
    line = Line(RejectsThenAway())
    line.at[100] = line.output.put_up
    line.deliver(1, 2)
    assert {*line.locks.asked} == {token(1)}


class RejectsThenAway(OutputThatIsDown):
    def answer(self, message: Outgoing, /) -> BuswayError | None:
        return MessageRejected("Poison", "no") if message.message_id == "m-2" else super().answer(message)

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        one_by_one = [
            await super(RejectsThenAway, self).send(entity, [message], timeout_seconds=timeout_seconds)
            for message in messages
        ]
        return [answer for answers in one_by_one for answer in answers]


def test_without_the_right_to_settle_the_batch_is_redelivered_and_no_message_sent_twice() -> None:
    line = Line(OutputThatRejects(at_fault), error=TargetRefused("no Listen claim"))
    for _ in range(3):
        with pytest.raises(TargetRefused):
            line.deliver(1, 2, 3)
    assert line.output.ids("orders") == ["m-1", "m-3"]


def test_message_that_rejects_refuses_is_dead_lettered_at_its_source() -> None:
    line = Line(OutputThatRejects(at_fault), rejects=OutputThatRejects(lambda _: True))
    assert line.deliver(1, 2, 3) == {Outcome.SENT: 2, Outcome.REJECTED: 1}
    assert [each for each, *_ in line.locks.dead] == [token(2)]
    assert line.journal.records[1].target == "west/orders/$DeadLetterQueue"


@pytest.mark.parametrize(("size", "room"), [(100, 5_000), (60_000, 5_000), (62_000, 3_200), (65_200, 80)])
def test_dead_letter_gets_only_a_description_that_its_headers_have_room_for(size: int, room: int) -> None:
    """SS86, SR86: larger headers are answered with an internal error, each time, which would stop the task."""
    line = Line(RejectsAtLength())
    line.deliver(1, named={"p": string("x" * size)})
    [(_, _, description)] = line.locks.dead
    assert room - 100 <= len(description) <= 65_536 - size


class RejectsAtLength(OutputThatAccepts):
    def answer(self, message: Outgoing, /) -> BuswayError | None:  # noqa: ARG002 - all are refused
        return MessageRejected("Poison", "y" * 5_000)


# The same message twice in a batch, with its first lock expired


def test_a_message_that_is_in_a_batch_twice_is_sent_once() -> None:
    line = Line(OutputThatAccepts())
    assert line.deliver(1, 2, 3, 2, 3) == {Outcome.SENT: 5}
    assert line.output.ids("orders") == ["m-1", "m-2", "m-3"]


def test_invalid_message_twice_in_a_batch_is_rejected_once() -> None:
    rejects = OutputThatAccepts()
    line = Line(OutputThatRejects(at_fault), rejects=rejects)
    assert line.deliver(2, 1, 2) == {Outcome.SENT: 1, Outcome.REJECTED: 2}
    assert rejects.ids("rejected") == ["m-2"]


def test_last_lock_of_a_message_twice_in_a_batch_counts() -> None:
    line = Line(OutputThatRejects(at_fault))
    batch = [delivered(2), delivered(1), delivered(2)]
    asyncio.run(line.pipeline.run(batch, None, [b"old" * 5 + b".", b"\x01" * 16, b"new" * 5 + b"."]))
    assert [each for each, *_ in line.locks.dead] == [b"new" * 5 + b"."]


# The limit of rejects in a row


def test_a_run_of_rejects_stops_the_task_at_its_limit() -> None:
    rejects = OutputThatAccepts()
    line = Line(OutputThatRejects(lambda _: True), rejects=rejects, rejects_in_a_row=3, hold=timedelta(minutes=5))
    for _ in range(2):
        with pytest.raises(TargetRefused, match="stopped after 3 rejected messages in a row"):
            line.deliver(*range(1, 8))
    assert rejects.ids("rejected") == ["m-1", "m-2", "m-3"]
    assert {*line.locks.completed} == {token(1), token(2), token(3)}, "what is rejected is completed alone"
    assert line.clock.monotonic() > 400, "a task that stands must not use up the deliveries"


def test_a_sent_message_resets_the_count_of_rejects_in_a_row() -> None:
    rejects = OutputThatAccepts()
    line = Line(OutputThatRejects(lambda message: message.message_id != "m-4"), rejects=rejects, rejects_in_a_row=3)
    assert line.deliver(*range(1, 8)) == {Outcome.REJECTED: 6, Outcome.SENT: 1}


def test_a_stopped_task_continues_when_its_target_accepts_again() -> None:
    rejects, broken = OutputThatAccepts(), [True]
    line = Line(OutputThatRejects(lambda _: bool(broken)), rejects=rejects, rejects_in_a_row=2)
    line.at[100] = broken.clear
    assert line.deliver(1, 2, 3, 4) == {Outcome.REJECTED: 2, Outcome.SENT: 2}
    assert line.output.ids("orders") == ["m-3", "m-4"]
    reasons = [dict(message.application_properties())[REASON].payload for message in rejects.messages("rejected")]
    assert reasons == ["TargetRefusedMessage"] * 2


def test_without_a_limit_any_number_of_messages_in_a_row_is_rejected() -> None:
    rejects = OutputThatAccepts()
    line = Line(OutputThatRejects(lambda _: True), rejects=rejects, rejects_in_a_row=None)
    assert line.deliver(*range(1, 201)) == {Outcome.REJECTED: 200}
