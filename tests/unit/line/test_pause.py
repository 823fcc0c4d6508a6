"""What a paused task does with the batches that the host delivers nevertheless, in virtual time."""

import asyncio

import pytest

from shared.amqp.values import long
from shared.errors import TargetUnavailable
from shared.line.pause import ORDER_SECONDS, Order
from shared.protocols import Outcome
from tests.fakes import OutputThatAccepts
from tests.messages import delivered
from tests.unit.line.virtual_line import LOCK, Line, token

HELD = 600


class Orders:
    """The order at each time, as (seconds, order)."""

    def __init__(self, *orders: tuple[float, Order | Exception], has_locks: bool = True) -> None:
        self.orders = orders
        self.reads: list[float] = []
        self.line = Line(OutputThatAccepts(), has_locks=has_locks, read_order=self.read)

    async def read(self) -> Order:
        now = self.line.clock.monotonic()
        self.reads.append(now)
        found = [order for since, order in self.orders if since <= now][-1]
        if isinstance(found, Exception):
            raise found
        return found


def test_a_batch_of_a_paused_task_waits_unsent_with_its_locks_and_is_sent_after_the_resume() -> None:
    orders = Orders((0, Order.WAIT), (600, Order.RUN))
    line = orders.line
    line.at[590] = lambda: assert_unsent(line)
    assert line.deliver(1, 2) == {Outcome.SENT: 2}
    assert 600 <= line.clock.monotonic() < 605
    gaps = [late - early for early, late in zip([0, *line.locks.times], line.locks.times, strict=False)]
    assert max(gaps) < LOCK
    assert line.locks.abandoned == []


def assert_unsent(line: Line[OutputThatAccepts]) -> None:
    assert line.output.accepted == {}
    assert line.journal.records == []


def test_a_batch_is_given_back_unsent_once_its_source_is_closed() -> None:
    orders = Orders((0, Order.WAIT), (20, Order.GIVE_BACK))
    with pytest.raises(TargetUnavailable, match="copy: is paused, the batch goes back to its source unsent"):
        orders.line.deliver(1, 2)
    assert sorted(orders.line.locks.abandoned) == [token(1), token(2)]
    assert 20 <= orders.line.clock.monotonic() < 25
    assert_unsent(orders.line)


def test_a_batch_that_a_closed_source_delivers_nevertheless_loses_no_delivery_attempt() -> None:
    # Someone has set the source active by hand.
    orders = Orders((0, Order.GIVE_BACK), (HELD, Order.RUN))
    assert orders.line.deliver(1) == {Outcome.SENT: 1}
    assert orders.line.clock.monotonic() >= HELD
    assert orders.line.locks.abandoned == []


def test_an_hour_of_an_order_alone_costs_an_attempt_for_each_hold() -> None:
    """The source is open: what is delivered is held, and after `limits.hold` it comes again (decision 0051)."""
    line = Orders((0, Order.WAIT)).line
    deliveries = 0
    while line.clock.monotonic() < 3_600:
        deliveries += 1
        with pytest.raises(TargetUnavailable, match="is paused"):
            line.deliver(1, 2)
    assert deliveries == 5
    assert_unsent(line)


def test_a_batch_of_a_hub_waits_until_its_limit_and_is_then_delivered_again() -> None:
    line = Orders((0, Order.WAIT), has_locks=False).line
    with pytest.raises(TargetUnavailable, match="is paused"):
        asyncio.run(line.pipeline.run([delivered(None, annotated={"x-opt-sequence-number": long(1)})], "0"))
    assert line.clock.monotonic() > HELD
    assert_unsent(line)


def test_a_running_task_asks_for_orders_once_in_five_seconds() -> None:
    orders = Orders((0, Order.RUN))
    for _ in range(10):
        assert orders.line.deliver(1) == {Outcome.SENT: 1}
        orders.line.clock.advance(1)
    assert orders.reads == [0, ORDER_SECONDS]


@pytest.mark.parametrize("before", [Order.RUN, Order.WAIT])
def test_the_last_order_stays_while_none_can_be_read(before: Order, caplog: pytest.LogCaptureFixture) -> None:
    down = TargetUnavailable("journal: the storage account cannot be reached")
    orders = Orders((0, before), (10, down), (300, Order.RUN))
    if before is Order.RUN:
        orders.line.deliver(1)
        orders.line.clock.advance(60)
    orders.line.deliver(2)
    expected = 60 if before is Order.RUN else 300
    assert expected <= orders.line.clock.monotonic() < expected + 40
    assert caplog.text.count("the orders of operators cannot be read, the last one stays: journal") == 1


def test_a_batch_that_cannot_be_given_back_stays_locked_until_its_locks_end(caplog: pytest.LogCaptureFixture) -> None:
    orders = Orders((0, Order.WAIT), (20, Order.GIVE_BACK))
    orders.line.locks.error = TargetUnavailable("west/orders: the source is unavailable")
    with pytest.raises(TargetUnavailable, match="is paused"):
        orders.line.deliver(1)
    assert "copy: messages stay locked until their locks end: west/orders: the source is unavailable" in caplog.text
