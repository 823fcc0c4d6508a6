"""How long a batch is held while its target is unavailable, and the renewal of its locks, in virtual time."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from shared.clock import ManualClock
from shared.errors import BuswayError, LockLost, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.accepted_sends import AcceptedSends
from shared.line.deadline import DEFAULT_HOLD, LOCK_MARGIN_SECONDS
from shared.line.pausing import Pause, ReadOrder
from shared.line.pipeline import Pipeline
from shared.line.rejection import REASON
from shared.line.routing import Route, Router, Target
from shared.line.shutdown import Shutdown
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.ttl import Keep
from shared.protocols import Outcome, Outgoing, Output
from shared.rules import parse_filter
from tests.fakes import (
    JournalInMemory,
    OutputThatAccepts,
    OutputThatFailsOnce,
    OutputThatIsDown,
    OutputThatRejects,
    clock_at_delivery,
)
from tests.messages import ENQUEUED, LOCK_MILLISECONDS, delivered

LOCK = LOCK_MILLISECONDS / 1000
NIGHT = timedelta(hours=12)


class LocksInMemory:
    """Locks of a minute on one batch; `lose` ends them, and a renewal that comes too late finds them lost."""

    def __init__(self, clock: ManualClock, *, error: Exception | None = None) -> None:
        self.clock = clock
        self.until = clock.now().timestamp() + LOCK
        self.error = error
        self.renewals: list[Any] = []
        self.asked: list[Any] = []
        self.dead: list[Any] = []
        self.abandoned: list[Any] = []

    def lose(self) -> None:
        self.until = 0.0

    async def renew(self, tokens: Sequence[bytes], session_id: str | None, **_: object) -> int:
        self.asked.append((tuple(tokens), session_id))
        if self.error is not None:
            raise self.error
        now = self.clock.now().timestamp()
        if now >= self.until:
            raise LockLost("west/orders: lost")
        self.renewals.append(self.clock.monotonic())
        self.until = now + LOCK
        return round(self.until * 1000)

    async def dead_letter(
        self, token: bytes, session_id: str | None, reason: str, description: str, **_: object
    ) -> None:
        if self.error is not None:
            raise self.error
        self.dead.append((token, session_id, reason, description))

    async def abandon(self, tokens: Sequence[bytes], **_: object) -> None:
        if self.error is not None:
            raise self.error
        self.abandoned.append(tuple(tokens))


class Line[AnOutput: Output]:
    def __init__(
        self,
        output: AnOutput,
        *,
        rejects: Output | None = None,
        has_locks: bool = True,
        error: Exception | None = None,
        accepted: AcceptedSends | None = None,
        read_order: ReadOrder | None = None,
        **options: Any,
    ) -> None:
        self.output = output
        self.clock = clock_at_delivery()
        self.locks = LocksInMemory(self.clock, error=error)
        self.at: dict[Any, Any] = {}
        self.shutdown = Shutdown()
        self.journal = JournalInMemory()
        self.task = Task(
            "copy",
            Origin("west", "orders"),
            [],
            Router([Route(Target(output, "east", "orders"))]),
            None if rejects is None else Target(rejects, "west", "rejected"),
            Keep(),
            None,
            locks=self.locks if has_locks else None,
            **options,
        )
        self.pipeline = Pipeline(
            self.task,
            self.journal,
            self.clock,
            self._sleep,
            shutdown=self.shutdown,
            accepted=accepted,
            pause=None if read_order is None else Pause("copy", read_order, self.clock),
        )

    def deliver(self, *numbers: int, **options: Any) -> Mapping[Outcome, int]:
        """Deliver a batch, with locks that begin now."""
        until = self.clock.now().timestamp() + LOCK
        self.locks.until = until
        batch = [delivered(number, locked_until=round(until * 1000), **options) for number in numbers]
        return asyncio.run(self.pipeline.run(batch, None, [bytes([number]) * 16 for number in numbers]))

    async def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.clock.advance(seconds)
        for when in [each for each in self.at if each <= self.clock.monotonic()]:
            self.at.pop(when)()
        await asyncio.sleep(0)


def test_a_batch_is_held_over_many_lock_renewals_and_sent_when_the_target_recovers() -> None:
    output = OutputThatIsDown()
    line = Line(output)
    line.at[600] = output.put_up
    assert line.deliver(1, 2) == {Outcome.SENT: 2}
    assert 600 <= line.clock.monotonic() < 610
    assert line.locks.asked[0] == ((b"\x01" * 16, b"\x02" * 16), None)
    gaps = [late - early for early, late in zip([0, *line.locks.renewals], line.locks.renewals, strict=False)]
    assert max(gaps) <= LOCK - LOCK_MARGIN_SECONDS


def test_a_batch_that_is_sent_at_once_renews_no_lock() -> None:
    line = Line(OutputThatAccepts())
    line.deliver(1, 2)
    assert line.locks.asked == []


def test_a_short_outage_renews_no_lock() -> None:
    line = Line(OutputThatFailsOnce())
    line.deliver(1)
    assert line.locks.asked == []


def test_lock_renewal_names_the_session_of_the_batch() -> None:
    output = OutputThatIsDown()
    line = Line(output)
    line.at[100] = output.put_up
    line.deliver(1, session_id="s")
    assert {session for _, session in line.locks.asked} == {"s"}


@pytest.mark.parametrize("error", [TargetUnavailable("away"), TargetRefused("disabled")], ids=["away", "refused"])
def test_ten_deliveries_outlast_an_outage_of_one_night(error: BuswayError) -> None:
    line = Line(OutputThatIsDown(error=error))
    for _ in range(10):
        with pytest.raises(type(error)):
            line.deliver(1)
    assert line.clock.monotonic() > NIGHT.total_seconds()


def test_a_batch_is_held_no_longer_than_its_limit() -> None:
    line = Line(OutputThatIsDown(), hold=timedelta(minutes=5))
    with pytest.raises(TargetUnavailable):
        line.deliver(1)
    assert 290 < line.clock.monotonic() <= 300


def test_a_lost_lock_ends_the_hold_with_lock_lost() -> None:
    line = Line(OutputThatIsDown())
    line.at[100] = line.locks.lose
    with pytest.raises(LockLost):
        line.deliver(1)
    assert line.clock.monotonic() < 100 + LOCK


def test_possibly_expired_lock_is_renewed_before_the_send() -> None:
    line = Line(OutputThatAccepts())
    line.locks.lose()
    with pytest.raises(LockLost):
        asyncio.run(line.pipeline.run([delivered(1, locked_until=ENQUEUED - 1)], None, [bytes(16)]))
    assert line.output.calls == []


def test_a_lock_without_an_end_is_renewed_at_the_first_pause() -> None:
    output = OutputThatFailsOnce()
    line = Line(output)
    assert asyncio.run(line.pipeline.run([delivered(None)], None, [bytes(16)])) == {Outcome.SENT: 1}
    assert len(line.locks.renewals) == 1


def test_refused_renewal_is_tried_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    line = Line(OutputThatIsDown(), error=TargetRefused("west/orders: the source refuses"))
    with pytest.raises(TargetUnavailable):
        line.deliver(1)
    assert len(line.locks.asked) == 1
    assert line.clock.monotonic() <= LOCK - LOCK_MARGIN_SECONDS
    assert [each.message for each in caplog.records if "renewed" in each.message] == [
        "copy: the batch waits only as long as its locks last, they cannot be renewed: west/orders: the source refuses"
    ]


def test_renewal_is_retried_after_a_short_outage_of_the_source() -> None:
    output = OutputThatIsDown()
    line = Line(output, error=TargetUnavailable("west/orders: away"))
    line.at[40] = lambda: setattr(line.locks, "error", None)
    line.at[300] = output.put_up
    assert line.deliver(1) == {Outcome.SENT: 1}


def test_a_shutdown_releases_a_held_batch_at_once() -> None:
    line = Line(OutputThatIsDown())
    line.at[20] = line.shutdown.request
    with pytest.raises(TargetUnavailable):
        line.deliver(1)
    assert line.clock.monotonic() < 30


def test_a_shutdown_ends_a_sleep() -> None:
    shutdown = Shutdown()

    async def sleep() -> None:
        asyncio.get_running_loop().call_later(0.05, shutdown.request)
        async with asyncio.timeout(5):
            await shutdown.sleep(3600)

    asyncio.run(sleep())


def test_a_refusing_target_and_its_recovery_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    output = OutputThatIsDown(error=TargetRefused("east/orders: it is disabled"))
    line = Line(output, hold=timedelta(minutes=10))
    with pytest.raises(TargetRefused):
        line.deliver(1)
    line.at[line.clock.monotonic() + 300] = output.put_up
    line.deliver(1)
    logged = [each.message for each in caplog.records if "retried" in each.message or "recovered" in each.message]
    assert [each.split(" after ")[0] for each in logged] == [
        "copy: the batch waits and is retried: east/orders: it is disabled",
        "copy: east/orders recovered",
    ]
    assert caplog.records[0].levelname == "ERROR"


def test_a_hub_and_one_of_its_partitions_are_separate_targets() -> None:
    """A message accepted by one of them is not accepted by the other."""
    up, down = OutputThatAccepts(), OutputThatIsDown()
    line = Line(up, hold=timedelta(minutes=5))
    routes = [
        Route(Target(down, "east", "hub", partition="0"), parse_filter("sys.MessageId = 'm-1'")),
        Route(Target(up, "east", "hub")),
    ]
    task = replace(line.task, router=Router(routes))
    line.pipeline = Pipeline(task, line.journal, line.clock, line._sleep)
    with pytest.raises(TargetUnavailable):
        line.deliver(1, 2)
    assert up.ids("hub") == ["m-2"]
    down.put_up()
    assert line.deliver(1, 2) == {Outcome.SENT: 2}
    assert (up.ids("hub"), down.ids("hub")) == (["m-2"], ["m-1"])


# Invalid and refused messages


def at_fault(message: Outgoing) -> bool:
    return message.message_id == "m-2"


def test_without_rejects_a_message_at_fault_is_dead_lettered_at_its_source_and_the_others_complete() -> None:
    line = Line(OutputThatRejects(at_fault))
    assert line.deliver(1, 2, 3, session_id="s") == {Outcome.SENT: 2, Outcome.REJECTED: 1}
    assert line.locks.dead == [(b"\x02" * 16, "s", "TargetRefusedMessage", "copy, sent: target/entity: no")]
    assert line.journal.records[1].target == "west/orders/$DeadLetterQueue"


def test_the_lock_of_a_dead_lettered_message_is_not_renewed() -> None:
    line = Line(RejectsThenAway())
    line.at[100] = line.output.put_up
    line.deliver(1, 2)
    assert {tokens for tokens, _ in line.locks.asked} == {(b"\x01" * 16,)}


class RejectsThenAway(OutputThatIsDown):
    def answer(self, message: Outgoing, /) -> BuswayError | None:
        return MessageRejected("Poison", "no") if message.message_id == "m-2" else super().answer(message)

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        one_by_one = [
            await super(RejectsThenAway, self).send(entity, [each], timeout_seconds=timeout_seconds)
            for each in messages
        ]
        return [answer for answers in one_by_one for answer in answers]


def test_without_the_right_to_settle_the_batch_is_redelivered_and_no_message_sent_twice() -> None:
    line = Line(OutputThatRejects(at_fault), error=TargetRefused("no Listen claim"))
    for _ in range(3):
        with pytest.raises(MessageRejected):
            line.deliver(1, 2, 3)
    assert line.output.ids("orders") == ["m-1", "m-3"]


def test_message_that_rejects_refuses_is_dead_lettered_at_its_source() -> None:
    line = Line(OutputThatRejects(at_fault), rejects=OutputThatRejects(lambda _: True))
    assert line.deliver(1, 2, 3) == {Outcome.SENT: 2, Outcome.REJECTED: 1}
    assert [token for token, *_ in line.locks.dead] == [b"\x02" * 16]
    assert line.journal.records[1].target == "west/orders/$DeadLetterQueue"


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
    assert [token for token, *_ in line.locks.dead] == [b"new" * 5 + b"."]


# The limit of rejects in a row


def test_a_run_of_rejects_stops_the_task_at_its_limit() -> None:
    rejects = OutputThatAccepts()
    line = Line(OutputThatRejects(lambda _: True), rejects=rejects, rejects_in_a_row=3, hold=timedelta(minutes=5))
    for _ in range(2):
        with pytest.raises(TargetRefused, match="stopped after 3 rejected messages in a row"):
            line.deliver(*range(1, 8))
    assert rejects.ids("rejected") == ["m-1", "m-2", "m-3"]
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


# The cache of accepted sends


def test_a_redelivered_batch_larger_than_the_cache_of_accepted_sends_is_not_sent_again() -> None:
    output = OutputThatFailsOnce(after=149, error=TargetUnavailable("away", retry_after=DEFAULT_HOLD * 2))
    accepted = AcceptedSends(limit=10)
    line = Line(output, accepted=accepted)
    with pytest.raises(TargetUnavailable):
        line.deliver(*range(1, 151))
    assert line.deliver(*range(1, 151)) == {Outcome.SENT: 150}
    assert output.ids("orders") == [f"m-{number}" for number in range(1, 151)]
    line.deliver(200)
    assert len(accepted) == 10
