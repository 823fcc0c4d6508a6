"""Unavailable targets: the order of messages, and how long a batch waits."""

from datetime import timedelta

import pytest

from shared.amqp.values import int_
from shared.errors import TargetRefused, TargetUnavailable
from shared.line.deadline import DEFAULT_HOLD, SHORTEST_ATTEMPT_SECONDS
from shared.line.locks import LOCK_MARGIN_SECONDS
from shared.line.outages import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS
from shared.line.routing import Route, Target
from shared.protocols import Outcome
from shared.rules import parse_filter
from tests.fakes import (
    OutputThatAccepts,
    OutputThatFailsOnce,
    OutputThatIsDown,
)
from tests.messages import ENQUEUED, delivered
from tests.unit.line.copying import Line


def test_a_message_whose_lock_ends_first_is_left_behind_alone() -> None:
    output = OutputThatIsDown()
    line = Line(output, has_locks=True)
    short = ENQUEUED + 25_000
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1), delivered(2, locked_until=short), delivered(3))
    assert line.pauses[:3] == pytest.approx([FIRST_WAIT_SECONDS, 2 * FIRST_WAIT_SECONDS, 4 * FIRST_WAIT_SECONDS])
    budget = 25 - LOCK_MARGIN_SECONDS
    assert max(output.timeouts[: output.calls.index(2)]) <= budget
    assert 25 < line.clock.monotonic() <= 60 - LOCK_MARGIN_SECONDS - SHORTEST_ATTEMPT_SECONDS
    assert output.timeouts[-1] >= SHORTEST_ATTEMPT_SECONDS


def test_retries_use_a_long_lock_up_to_the_safety_margin() -> None:
    line = Line(OutputThatIsDown(), has_locks=True)
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1, locked_until=ENQUEUED + 300_000))
    assert 0 < 300 - LOCK_MARGIN_SECONDS - line.clock.monotonic() < LONGEST_WAIT_SECONDS + SHORTEST_ATTEMPT_SECONDS


def test_a_batch_without_locks_is_retried_for_the_whole_time_limit_of_its_task() -> None:
    line = Line(OutputThatIsDown())
    with pytest.raises(TargetUnavailable):
        line.run(delivered(None))
    assert 0 <= DEFAULT_HOLD.total_seconds() - line.clock.monotonic() < LONGEST_WAIT_SECONDS + SHORTEST_ATTEMPT_SECONDS


def test_a_lock_that_is_about_to_expire_allows_one_attempt() -> None:
    output = OutputThatIsDown()
    line = Line(output, has_locks=True)
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1, locked_until=ENQUEUED + 2_000))
    assert output.calls == [1]
    assert line.pauses == []


def test_a_retry_waits_as_long_as_the_target_asks() -> None:
    output = OutputThatFailsOnce(error=TargetUnavailable("busy", retry_after=timedelta(seconds=4)))
    line = Line(output)
    assert line.run(delivered(1)) == {Outcome.SENT: 1}
    assert line.pauses == [4.0]


def test_a_target_that_refuses_raises_target_refused() -> None:
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
