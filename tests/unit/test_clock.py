from datetime import UTC, datetime, timedelta, timezone

import pytest

from shared.clock import Clock, ManualClock, SystemClock

START = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)


def test_a_manual_clock_stands_still() -> None:
    clock = ManualClock(START)
    assert clock.now() == START
    assert clock.now() == START
    assert clock.monotonic() == 0


def test_both_times_advance_together() -> None:
    clock = ManualClock(START)
    clock.advance(1.5)
    clock.advance(0)
    assert clock.now() == START + timedelta(seconds=1.5)
    assert clock.monotonic() == 1.5
    clock.advance(3600)
    assert clock.now() == datetime(2026, 2, 1, 1, 0, 0, 500_000, tzinfo=UTC)


def test_small_steps_add_up() -> None:
    clock = ManualClock(START)
    for _ in range(1000):
        clock.advance(0.001)
    assert clock.now() == START + timedelta(seconds=1)


def test_a_manual_clock_does_not_go_back() -> None:
    clock = ManualClock(START)
    with pytest.raises(ValueError, match=r"cannot go back by 0\.5 s"):
        clock.advance(-0.5)
    assert clock.now() == START


def test_a_start_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="start must be an aware datetime"):
        ManualClock(START.replace(tzinfo=None))


def test_a_start_elsewhere_is_the_same_moment_in_utc() -> None:
    clock = ManualClock(START.astimezone(timezone(timedelta(hours=5, minutes=30))))
    assert clock.now() == START
    assert clock.now().tzinfo is UTC


def test_the_system_clock_is_aware_and_does_not_run_backwards() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(minutes=1)
    times = [clock.monotonic() for _ in range(100)]
    assert times == sorted(times)


def test_either_clock_is_a_clock() -> None:
    def date(clock: Clock) -> datetime:
        return clock.now()

    assert date(ManualClock(START)) == START
    assert date(SystemClock()) > START - timedelta(days=10_000)
