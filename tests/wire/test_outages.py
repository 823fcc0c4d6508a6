"""A target that is away, over the wire and in virtual time: no delivery is burnt, nothing is lost, order is kept."""

from collections.abc import Iterator

import pytest

from busway_broker.core.content import read_content
from busway_broker.core.namespace import Namespace
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from shared.clock import ManualClock
from shared.errors import LockLost, MessageRejected, TargetRefused, TargetUnavailable
from shared.message.message import Message
from tests.messages import delivered
from tests.wire.line import WireLine, clock_now, identity, namespaces

pytestmark = pytest.mark.long

SEND = frozenset((Operation.SEND,))
NINE_MINUTES = 540.0, 0
"""Less than an idle link lasts (SR4, SR2); no delivery fails."""
FORTY_MINUTES = 2400.0, 2
"""Longer than two holds, and than ten deliveries of one lock each; a delivery fails for each hold."""


@pytest.fixture
def clock() -> ManualClock:
    return clock_now()


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[RunningBroker]:
    with RunningBroker(namespaces(), clock) as running:
        yield running


def publish(broker: RunningBroker, queue: str, count: int, sessions: int = 3) -> None:
    """Put messages into a queue of west, in turn into its sessions."""

    def put(west: Namespace) -> None:
        for number in range(count):
            session = f"s{number % sessions}" if queue == "sessions" else None
            west.target(queue).publish(read_content(delivered(None, message_id=f"m-{number}", session_id=session)))

    broker.inspect("west", put)


def delivery_counts(line: WireLine) -> set[int]:
    return {message.delivery_count for message in line.stored("west")}


@pytest.mark.parametrize(
    ("queue", "fault", "lasts"),
    [
        ("plain", Fault(effect=Effect.THROTTLE, operations=SEND), NINE_MINUTES),
        ("sessions", Fault(effect=Effect.DISABLE), NINE_MINUTES),
        ("sessions", Fault(effect=Effect.DISABLE), FORTY_MINUTES),
    ],
    ids=["throttled", "disabled", "disabled for longer than a link may idle"],
)
def test_an_outage_costs_a_delivery_for_each_hold_that_it_outlasts(
    broker: RunningBroker, clock: ManualClock, queue: str, fault: Fault, lasts: tuple[float, int]
) -> None:
    seconds, failed = lasts
    broker.faults("east").add(fault)
    publish(broker, queue, 30)
    line = WireLine(broker, clock, queue=queue)
    line.at(seconds - 1, lambda: delivery_counts_seen.append(delivery_counts(line)))
    delivery_counts_seen: list[set[int]] = []
    line.at(seconds, broker.faults("east").clear)
    line.run(line.is_drained)
    assert [max(each) for each in delivery_counts_seen] == [failed]
    assert clock.monotonic() >= seconds
    assert len(line.failures) == failed, line.failures
    assert line.dead() == []
    order = line.ids()
    assert sorted(order) == sorted(f"m-{number}" for number in range(30))
    for session in range(3):
        of_one = [int(each[2:]) for each in order if int(each[2:]) % 3 == session]
        assert of_one == sorted(of_one)


def test_an_outage_that_costs_a_new_link_at_each_attempt_is_one_delivery(
    broker: RunningBroker, clock: ManualClock
) -> None:
    broker.faults("east").add(Fault(effect=Effect.REFUSE, operations=SEND, condition="amqp:internal-error"))
    publish(broker, "plain", 3)
    line = WireLine(broker, clock)
    line.at(120, broker.faults("east").clear)
    line.run(line.is_drained)
    assert line.failures == []
    assert line.ids() == ["m-0", "m-1", "m-2"]


def test_without_renewal_a_batch_is_held_for_its_lock(broker: RunningBroker, clock: ManualClock) -> None:
    broker.faults("east").add(Fault(effect=Effect.THROTTLE, operations=SEND))
    publish(broker, "plain", 3)
    line = WireLine(broker, clock, has_locks=False)
    line.at(100, broker.faults("east").clear)
    line.run(line.is_drained)
    assert len(line.failures) == 2
    assert line.ids() == ["m-0", "m-1", "m-2"]


def test_a_source_that_refuses_renewal_is_logged_once_and_the_batch_is_held_for_its_lock(
    broker: RunningBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = Fault(
        effect=Effect.REFUSE, operations=frozenset((Operation.MANAGE,)), condition="amqp:unauthorized-access"
    )
    broker.faults("west").add(refusal)
    broker.faults("east").add(Fault(effect=Effect.THROTTLE, operations=SEND))
    publish(broker, "plain", 3)
    line = WireLine(broker, clock)
    line.at(50, broker.faults("east").clear)
    line.run(line.is_drained)
    assert [type(error) for error in line.failures] == [TargetUnavailable]
    warnings = [record.getMessage() for record in caplog.records if "cannot be renewed" in record.getMessage()]
    assert len(warnings) == 1
    assert "west/plain" in warnings[0]
    assert line.ids() == ["m-0", "m-1", "m-2"]


@pytest.mark.parametrize("queue", ["plain", "sessions"])
def test_a_lost_lock_is_noticed_and_nothing_sent_twice(broker: RunningBroker, clock: ManualClock, queue: str) -> None:
    broker.faults("east").add(Fault(effect=Effect.THROTTLE, operations=SEND))
    publish(broker, queue, 3, sessions=1)
    line = WireLine(broker, clock, queue=queue)
    line.at(40, lambda: broker.faults("west").expire_locks(queue))
    line.at(200, broker.faults("east").clear)
    line.run(line.is_drained)
    assert [type(error) for error in line.failures][:1] == [LockLost]
    # What comes back to a queue without sessions is delivered in any order.
    ids = line.ids() if queue == "sessions" else sorted(line.ids())
    assert ids == ["m-0", "m-1", "m-2"]


# Messages at fault, without `rejects`; `test_bad_input` has what is in the dead-letter queue


class Refusing:
    """An editor that objects to the messages with these ids."""

    name = "refusing"

    def __init__(self, *ids: object) -> None:
        self._ids = ids

    def edit(self, message: Message) -> list[Message]:
        assert message.message_id is not None
        message_id = message.message_id.payload
        if message_id in self._ids:
            raise MessageRejected("Poison", f"{message_id!s} is poison")
        return [message]


@pytest.mark.parametrize("queue", ["plain", "sessions"])
def test_a_message_at_fault_does_not_end_the_hold_of_its_neighbours(
    broker: RunningBroker, clock: ManualClock, queue: str
) -> None:
    broker.faults("east").add(Fault(effect=Effect.THROTTLE, operations=SEND))
    publish(broker, queue, 4, sessions=1)
    line = WireLine(broker, clock, queue=queue, has_rejects=False, editors=[Refusing("m-1")])
    line.at(150, broker.faults("east").clear)
    line.run(line.is_drained)
    assert line.failures == []
    assert line.ids() == ["m-0", "m-2", "m-3"]
    assert [identity(message) for message in line.dead()] == ["m-1"]


def test_where_the_host_settles_whole_batches_only_the_neighbours_are_sent_once(
    broker: RunningBroker, clock: ManualClock
) -> None:
    publish(broker, "plain", 3)
    line = WireLine(broker, clock, has_locks=False, has_rejects=False, editors=[Refusing("m-1")])
    line.run(lambda: len(line.failures) == 3)
    assert {type(error) for error in line.failures} == {TargetRefused}
    assert line.ids() == ["m-0", "m-2"]
