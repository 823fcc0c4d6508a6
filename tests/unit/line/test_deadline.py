"""How long a batch is held while its target is unavailable, and the renewal of its locks, in virtual time."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import pytest

from shared.errors import BuswayError, LockLost, TargetRefused, TargetUnavailable
from shared.line.accepted_sends import AcceptedSends
from shared.line.deadline import DEFAULT_HOLD
from shared.line.locks import LOCK_MARGIN_SECONDS, UNKNOWN_LOCK_SECONDS, Locks, SourceLocks
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.shutdown import Shutdown
from shared.protocols import Outcome
from shared.rules import parse_filter
from tests.fakes import (
    OutputThatAccepts,
    OutputThatFailsOnce,
    OutputThatIsDown,
)
from tests.messages import delivered
from tests.unit.line.virtual_line import LOCK, Line, token

NIGHT = timedelta(hours=2, minutes=20)


def test_a_batch_is_held_over_many_lock_renewals_and_sent_when_the_target_recovers() -> None:
    output = OutputThatIsDown()
    line = Line(output)
    line.at[600] = output.put_up
    assert line.deliver(1, 2) == {Outcome.SENT: 2}
    assert 600 <= line.clock.monotonic() < 610
    assert {each for _, each in line.locks.renewed} == {token(1), token(2)}
    gaps = [late - early for early, late in zip([0, *line.locks.times], line.locks.times, strict=False)]
    assert max(gaps) <= LOCK - LOCK_MARGIN_SECONDS
    assert line.locks.completed == [], "the host completes a batch that has succeeded"


def test_a_batch_that_is_sent_at_once_renews_no_lock() -> None:
    line = Line(OutputThatAccepts())
    line.deliver(1, 2)
    assert line.locks.asked == []


def test_a_short_outage_renews_no_lock() -> None:
    line = Line(OutputThatFailsOnce())
    line.deliver(1)
    assert line.locks.asked == []


def test_the_lock_of_a_session_is_renewed_whatever_its_messages_say() -> None:
    """SR1: they say the year 10000."""
    output = OutputThatIsDown()
    line = Line(output)
    line.at[600] = output.put_up
    assert line.deliver(1, 2, session=line.session, session_id="s") == {Outcome.SENT: 2}
    assert {each for _, each in line.locks.renewed} == {b"session"}
    gaps = [late - early for early, late in zip([0, *line.locks.times], line.locks.times, strict=False)]
    assert max(gaps) <= LOCK - LOCK_MARGIN_SECONDS


@pytest.mark.parametrize(("left", "renewals"), [(50, 0), (20, 1), (-1, 1), (None, 1), (8000 * 365 * 86_400, 1)])
def test_a_session_in_the_middle_of_many_batches_is_renewed_before_a_send(left: float | None, renewals: int) -> None:
    line = Line(OutputThatAccepts())
    line.session.locked_until = round((line.clock.now().timestamp() + LOCK) * 1000)
    line.deliver(1, session=line.session, session_id="s")
    now = line.clock.now().timestamp()
    line.session.locked_until = None if left is None else round((now + left) * 1000)
    assert line.deliver(2, session=line.session, session_id="s") == {Outcome.SENT: 1}
    assert len(line.locks.renewed) == renewals, "an end that says nothing may be near"


@pytest.mark.parametrize("error", [TargetUnavailable("away"), TargetRefused("disabled")], ids=["away", "refused"])
def test_ten_deliveries_outlast_an_outage_of_two_hours(error: BuswayError) -> None:
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


def test_a_message_whose_lock_is_lost_is_left_to_its_source_and_the_others_go_on() -> None:
    output = OutputThatIsDown()
    line = Line(output)
    line.at[100] = lambda: line.locks.lose(token(2))
    line.at[300] = output.put_up
    with pytest.raises(LockLost):
        line.deliver(1, 2, 3)
    assert output.ids("orders") == ["m-1", "m-3"]
    assert sorted(line.locks.completed) == [token(1), token(3)], "a batch that has failed is abandoned by the host"
    assert line.outcomes() == [Outcome.SENT, Outcome.RETRY, Outcome.SENT]


def test_a_message_whose_lock_is_lost_while_its_batch_waits_for_its_turn_is_not_sent() -> None:
    line = Line(OutputThatAccepts(), rate=0.02)
    line.deliver(3)
    line.at[1] = lambda: line.locks.lose(token(1))
    with pytest.raises(LockLost):
        line.deliver(1, 2)
    assert line.output.ids("orders") == ["m-3", "m-2"]


def test_one_refused_renewal_gives_up_nothing() -> None:
    """SR10, FN02: one renewal in a thousand is refused although the lock is held."""
    output = OutputThatIsDown()
    line = Line(output)
    line.locks.spurious = 1
    line.at[600] = output.put_up
    assert line.deliver(1, 2) == {Outcome.SENT: 2}


def test_a_batch_that_has_lost_all_its_locks_goes_back() -> None:
    line = Line(OutputThatIsDown())
    line.at[100] = line.locks.lose
    with pytest.raises(TargetUnavailable):
        line.deliver(1, 2)
    assert line.clock.monotonic() < 100 + LOCK


def test_what_another_target_has_accepted_is_completed_at_once_and_once() -> None:
    output, other = OutputThatIsDown(), OutputThatAccepts()
    line = Line(output, other=other)
    settled: list[object] = []
    line.at[10] = lambda: settled.extend([sorted(line.locks.completed), line.outcomes()])
    line.at[600] = output.put_up
    assert line.deliver(1, 2, 3, 4) == {Outcome.SENT: 4}
    assert settled == [[token(2), token(4)], [Outcome.SENT] * 2]
    assert len(line.locks.completed) == 2
    assert len(line.journal.records) == 4
    assert {each for when, each in line.locks.renewed if when > 10} == {token(1), token(3)}


def test_what_is_sent_is_completed_before_a_batch_fails() -> None:
    line = Line(OutputThatIsDown(), other=OutputThatAccepts(), hold=timedelta(minutes=5))
    with pytest.raises(TargetUnavailable):
        line.deliver(1, 2)
    assert line.locks.completed == [token(2)]


def test_what_a_session_has_sent_is_completed_before_its_lock_ends_if_that_cannot_be_renewed() -> None:
    line = Line(OutputThatIsDown(), other=OutputThatAccepts())
    line.session.error = TargetRefused("two functions have sessions of one id")
    in_time: list[bytes] = []
    line.at[UNKNOWN_LOCK_SECONDS] = lambda: in_time.extend(line.locks.completed)
    with pytest.raises(TargetUnavailable):
        line.deliver(1, 2, session=line.session, session_id="s")
    assert in_time == [token(2)]


@pytest.mark.parametrize("error", [TargetRefused("two functions have sessions of one id"), TargetUnavailable("gone")])
@pytest.mark.parametrize("seconds_left", [LOCK, 5.0, 0.0])
def test_a_session_that_cannot_be_renewed_fails_once_its_lock_has_ended_so_that_each_lock_costs_one_delivery(
    seconds_left: float, error: BuswayError
) -> None:
    """Until its end, the host delivers what has failed again at once."""
    line = Line(OutputThatIsDown())
    line.session.error = error
    line.session.locked_until = round((line.clock.now().timestamp() + seconds_left) * 1000)
    with pytest.raises(TargetUnavailable):
        line.deliver(1, session=line.session, session_id="s")
    assert seconds_left < line.clock.monotonic() < seconds_left + 5


def test_a_session_that_cannot_be_renewed_is_given_back_at_once_when_the_process_ends() -> None:
    line = Line(OutputThatIsDown())
    line.session.error = TargetRefused("two functions have sessions of one id")
    line.at[1.0] = line.shutdown.request
    with pytest.raises(TargetUnavailable):
        line.deliver(1, session=line.session, session_id="s")
    assert (line.clock.monotonic() < UNKNOWN_LOCK_SECONDS / 2, line.locks.released) == (True, 1)


@pytest.mark.parametrize("renewal", [None, TargetUnavailable("gone")], ids=["lost", "not renewed"])
def test_a_session_that_ends_while_no_outcome_can_be_recorded_sends_nothing_more(renewal: BuswayError | None) -> None:
    async def fail() -> None:
        raise TargetUnavailable("the journal is away")

    output = OutputThatIsDown()
    line = Line(output, other=OutputThatAccepts())
    line.session.error = renewal
    line.at[10] = line.locks.lose
    line.at[LOCK] = output.put_up
    with patch.object(line.journal, "decided", lambda *_: fail), pytest.raises(TargetUnavailable):
        line.deliver(1, 2, session=line.session, session_id="s")
    assert output.ids("orders") == [], "the next owner of the session sends it"


def test_a_lost_session_is_lost_for_all_that_renew_it_at_one_moment() -> None:
    line = Line(OutputThatAccepts())
    line.locks.lose()
    locks = Locks(SourceLocks("copy", "west/orders", line.locks, line.clock), {token(1): None}, line.session)

    async def renew_twice() -> Sequence[object]:
        return await asyncio.gather(locks.renew(), locks.renew(), return_exceptions=True)

    assert [type(found) for found in asyncio.run(renew_twice())] == [LockLost, LockLost]


def test_a_lock_without_an_end_is_renewed_at_the_first_pause() -> None:
    output = OutputThatFailsOnce()
    line = Line(output)
    assert asyncio.run(line.pipeline.run([delivered(None)], None, [token(1)])) == {Outcome.SENT: 1}
    assert len(line.locks.renewed) == 1


def test_refused_renewal_is_tried_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    line = Line(OutputThatIsDown(), error=TargetRefused("no right"))
    with pytest.raises(TargetUnavailable):
        line.deliver(1)
    assert len(line.locks.asked) == 1
    assert line.clock.monotonic() <= LOCK - LOCK_MARGIN_SECONDS
    with pytest.raises(TargetUnavailable):
        line.deliver(1)
    assert [record.message for record in caplog.records if "renewed" in record.message] == [
        "copy: batches from west/orders wait only as long as their locks last, these cannot be renewed: no right"
    ], "once for the task"


def test_renewal_is_retried_after_a_short_outage_of_the_source() -> None:
    output = OutputThatIsDown()
    line = Line(output, error=TargetUnavailable("west/orders: away"))
    line.at[40] = lambda: setattr(line.locks, "error", None)
    line.at[300] = output.put_up
    assert line.deliver(1) == {Outcome.SENT: 1}


@pytest.mark.parametrize("has_session", [False, True])
def test_a_shutdown_gives_a_held_batch_back_at_once(has_session: bool) -> None:
    """FN31: SIGTERM does reach the worker."""
    line = Line(OutputThatIsDown(), other=OutputThatAccepts())
    line.at[20] = line.shutdown.request
    with pytest.raises(TargetUnavailable):
        line.deliver(1, 2, session=line.session if has_session else None, session_id="s")
    assert line.clock.monotonic() < 30
    assert line.locks.completed == [token(2)]
    assert (line.locks.abandoned, line.locks.released) == (([], 1) if has_session else ([token(1)], 0))
    assert line.shutdown.in_progress == 0


def test_what_is_delivered_after_a_shutdown_waits_for_the_end_of_the_process() -> None:
    """FN69: if it failed at once, the host would deliver it again at once, until its attempts are used up."""
    line = Line(OutputThatIsDown())
    line.shutdown.request()

    async def run() -> None:
        async with asyncio.timeout(0.3):
            await line.pipeline.run([delivered(1)], None, [token(1)])

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert (line.locks.abandoned, line.outcomes()) == ([], [])


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
    logged = [
        record.message for record in caplog.records if "retried" in record.message or "recovered" in record.message
    ]
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
