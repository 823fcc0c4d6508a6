"""When heartbeats are sent, how the status shows them, and when they are missed."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.clock import ManualClock
from shared.errors import TargetUnavailable
from shared.message.arrival import Origin
from shared.message.heartbeat import Heartbeat, heartbeat_in
from shared.message.message import Message
from shared.message.waiting import Waiting
from shared.status.facts import Look, TaskPlaces
from shared.status.heartbeat_timer import HeartbeatRoute, HeartbeatTimer
from shared.status.merge import task_status
from shared.status.model import Health, Place, State, TaskStatus
from shared.status.publisher import Identity, Publisher
from shared.status.recorder import TaskRecorder
from shared.status.report import Control
from shared.status.store import StatusStore
from shared.status.verdict import verdict
from tests.fakes import OutputThatAccepts, OutputThatIsDown
from tests.unit.status.test_publisher import ContainerInMemory

START = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
EVERY = 60.0
TARGET = Place("east", "orders")
PLACES = TaskPlaces(
    "copy", Place("west", "orders"), "service-bus", [TARGET], None, heartbeats=[TARGET], heartbeat_seconds=EVERY
)


class Instance:
    """A process of the app, with the timer and one task."""

    def __init__(self, container: ContainerInMemory, clock: ManualClock, name: str = "one") -> None:
        self.clock, self.container = clock, container
        self.store = StatusStore(container)
        self.recorder = TaskRecorder("copy", clock)
        self.publisher = Publisher(lambda: self.store, [self.recorder], Identity(name), clock)
        self.output = OutputThatAccepts()
        self.timer = self._timer(self.output)

    def _timer(self, output: OutputThatAccepts) -> HeartbeatTimer:
        route = HeartbeatRoute("copy", 0, EVERY, output, "orders", True, None, self.recorder)
        return HeartbeatTimer([route], lambda: self.store, self.clock)

    def tick(self, seconds: float = EVERY) -> int:
        """Call the timer after *seconds*, publish, and return how many heartbeats were sent in all."""
        self.clock.advance(seconds)
        asyncio.run(self.timer.look())
        asyncio.run(self.publisher.publish())
        return len(self.sent())

    def sent(self) -> list[Message]:
        return self.output.messages("orders")

    def deliver(self, milliseconds: int | None = 250, refusal: str | None = None) -> None:
        """Take the last heartbeat out of the source."""
        found = heartbeat_in(self.sent()[-1])
        assert found is not None
        self.recorder.heartbeat(found.route, found.sent, milliseconds, refusal)

    def status(self) -> TaskStatus:
        asyncio.run(self.publisher.publish())
        reports = asyncio.run(self.store.reports(self.clock.now(), 60))
        return task_status(PLACES, Look(Waiting(0)), reports, (), reports.now)


@pytest.fixture
def instance() -> Instance:
    clock = ManualClock(START)
    return Instance(ContainerInMemory(clock), clock)


def test_a_heartbeat_that_arrives_is_followed_by_the_next_and_shown_with_its_latency(instance: Instance) -> None:
    for number in range(1, 4):
        assert instance.tick() == number
        instance.deliver(250 + number)
    found = instance.status()
    (heartbeat,) = found.heartbeats
    assert (heartbeat.target, heartbeat.latency, heartbeat.missed, heartbeat.every) == (TARGET, 0.253, False, EVERY)
    assert heartbeat.arrived == "2026-11-23T10:03:00Z"
    assert (found.state, found.last_batch, found.instances) == (State.IDLE, None, 0)
    assert instance.sent()[0].session_id == "busway-heartbeat"


def test_only_one_is_on_its_way_and_a_task_that_stands_still_for_hours_gets_few(instance: Instance) -> None:
    instance.tick()
    assert instance.tick() == instance.tick() == 1
    for _ in range(4 * 60):
        sent = instance.tick()
    assert 4 * 6 <= sent <= 4 * 6 + 2


def test_another_instance_knows_what_is_on_its_way(instance: Instance) -> None:
    instance.tick()
    other = Instance(instance.container, instance.clock, "two")
    assert other.tick() == 0
    instance.deliver()
    asyncio.run(instance.publisher.publish())
    assert other.tick() == 1


def test_a_paused_task_gets_none_and_misses_none(instance: Instance) -> None:
    instance.tick()
    instance.deliver()
    asyncio.run(instance.store.write_control("copy", Control(paused=True)))
    for _ in range(20):
        assert instance.tick() == 1
    assert not instance.status().heartbeats[0].missed


def test_missed_heartbeats_need_attention_for_the_reason_that_is_known(instance: Instance) -> None:
    instance.tick()
    instance.deliver()
    instance.tick()
    instance.deliver(None, "east/orders: it is disabled")
    instance.tick()
    assert not instance.status().heartbeats[0].missed
    instance.tick()
    instance.tick(1)
    found = instance.status()
    (heartbeat,) = found.heartbeats
    assert (heartbeat.missed, heartbeat.reason) == (True, "east/orders: it is disabled")
    assert verdict([found]) == (Health.ATTENTION, "1 of 1 task needs attention: copy misses heartbeats.")
    instance.deliver()
    assert not instance.status().heartbeats[0].missed


def test_a_heartbeat_that_stays_at_the_source_or_cannot_be_sent_says_so(instance: Instance) -> None:
    for _ in range(5):
        instance.tick()
    reason = instance.status().heartbeats[0].reason
    assert reason == "the one of 2026-11-23T10:01:00Z has not come out of the source"
    instance.timer = instance._timer(OutputThatIsDown(error=TargetUnavailable("west/orders: away")))
    for _ in range(10):
        instance.tick()
    assert instance.status().heartbeats[0].reason == "it cannot be sent to the source: west/orders: away"


def test_a_timer_that_never_runs_is_seen(instance: Instance) -> None:
    instance.status()
    for _ in range(10):
        instance.clock.advance(20)
        found = instance.status()
    assert (found.heartbeats[0].missed, found.heartbeats[0].reason) == (True, "no instance has sent one")


def test_without_an_instance_nothing_is_known(instance: Instance) -> None:
    reports = asyncio.run(instance.store.reports(instance.clock.now(), 60))
    found = task_status(PLACES, Look(Waiting(0)), reports, (), reports.now)
    assert found.heartbeats == []
    assert found.unknown["heartbeats"] == "no instance reports"
    blind = task_status(PLACES, Look(Waiting(0)), "the storage account cannot be reached", (), START)
    assert blind.unknown["heartbeats"] == "the storage account cannot be reached"


def test_a_storage_account_that_is_down_does_not_stop_heartbeats(instance: Instance) -> None:
    class Broken(ContainerInMemory):
        async def listed(self, prefix: str) -> Any:
            raise TargetUnavailable(f"{prefix}: away")

    instance.store = StatusStore(Broken(instance.clock))
    instance.clock.advance(EVERY)
    asyncio.run(instance.timer.look())
    assert len(instance.sent()) == 1


def test_clocks_that_differ_do_not_hide_an_arrival(instance: Instance) -> None:
    ahead = ManualClock(START + timedelta(seconds=20))
    other = Instance(instance.container, ahead, "ahead")
    instance.tick()
    (message,) = instance.sent()
    found = heartbeat_in(Message.received(message.encode(), Origin("west", "orders")))
    assert found == Heartbeat("copy", 0, round((START + timedelta(seconds=EVERY)).timestamp() * 1000))
    ahead.advance(EVERY)
    other.recorder.heartbeat(0, found.sent, 250, None)
    asyncio.run(other.publisher.publish())
    assert instance.tick() == 2
