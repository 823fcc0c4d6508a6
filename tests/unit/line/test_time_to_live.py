"""The time to live of copies that wait for their target, in virtual time: a wait is part of it."""

from datetime import timedelta

import pytest

from shared.line.pause import Order
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.ttl import MIN_MILLISECONDS, Keep, Remaining, Stamp, TimeToLive
from shared.protocols import Outcome
from tests.fakes import OutputThatAccepts, OutputThatIsDown
from tests.unit.line.virtual_line import Line

OUTAGE = 600
LIFE = 900_000


def life_after_an_outage(line: Line[OutputThatIsDown], time_to_live: int = LIFE) -> int | None:
    """Deliver a message at once, while the target is down; return the time to live of its copy."""
    line.at[OUTAGE] = line.output.put_up
    enqueued = round(line.clock.now().timestamp() * 1000)
    assert line.deliver(1, enqueued=enqueued, time_to_live=time_to_live) == {Outcome.SENT: 1}
    return life_of(line.output)


def life_of(output: OutputThatAccepts) -> int | None:
    (copies,) = output.accepted.values()
    return Message.received(copies[0].content, Origin("east", "orders")).time_to_live


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(Remaining(), LIFE - OUTAGE * 1000), (Keep(), LIFE), (Stamp(timedelta(minutes=2)), 120_000)],
)
def test_a_copy_that_has_waited_gets_what_is_left_of_its_life(policy: TimeToLive, expected: int) -> None:
    found = life_after_an_outage(Line(OutputThatIsDown(), life=policy))
    assert found is not None
    assert expected - 10_000 < found <= expected


def test_what_has_ended_while_an_attempt_had_no_answer_ends_at_once_at_its_target() -> None:
    """It may have arrived: a record that it was withheld could be wrong."""
    assert life_after_an_outage(Line(OutputThatIsDown(), life=Remaining()), 300_000) == MIN_MILLISECONDS


def test_the_life_that_a_route_has_set_is_not_shortened() -> None:
    line = Line(OutputThatIsDown(), life=Remaining(), action="SET sys.TimeToLive = '0:2:0'")
    assert life_after_an_outage(line) == 120_000


def test_what_has_ended_during_a_pause_is_withheld() -> None:
    async def order() -> Order:
        return Order.WAIT if line.clock.monotonic() < OUTAGE else Order.RUN

    line = Line(OutputThatAccepts(), life=Remaining(), read_order=order)
    enqueued = round(line.clock.now().timestamp() * 1000)
    assert line.deliver(1, enqueued=enqueued, time_to_live=300_000) == {Outcome.EXPIRED: 1}
