from datetime import datetime, timedelta

import pytest

from host.ncrontab import parse_schedule

FRIDAY = datetime(2026, 11, 20, 10, 0, 0, 500)  # noqa: DTZ001 - the schedule takes any kind of time


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("* * * * * *", "2026-11-20 10:00:01"),
        ("*/15 * * * * *", "2026-11-20 10:00:15"),
        ("0 */5 * * * *", "2026-11-20 10:05:00"),
        ("*/5 * * * *", "2026-11-20 10:05:00"),
        ("0 30 9 * * mon-fri", "2026-11-23 09:30:00"),
        ("0 0 0 1 jan *", "2027-01-01 00:00:00"),
        ("0 0 12 29 2 *", "2028-02-29 12:00:00"),
        ("5,10 0 10-11 * * *", "2026-11-20 10:00:05"),
        ("0 0 10/6 * * *", "2026-11-20 16:00:00"),
        ("0 59 23 31 12 *", "2026-12-31 23:59:00"),
    ],
)
def test_next_time(schedule: str, expected: str) -> None:
    assert str(parse_schedule(schedule).next_after(FRIDAY)) == expected


def test_time_span_is_an_interval() -> None:
    assert parse_schedule("00:00:30").next_after(FRIDAY) == FRIDAY + timedelta(seconds=30)


def test_date_that_never_comes() -> None:
    assert parse_schedule("0 0 0 31 2 *").next_after(FRIDAY) is None


@pytest.mark.parametrize(
    "schedule",
    ["", "* * *", "60 * * * * *", "* * * 0 * *", "x * * * * *", "*/0 * * * * *", "5-1 * * * * *", "00:00:00"],
)
def test_wrong_schedules_are_refused(schedule: str) -> None:
    with pytest.raises(ValueError, match=r"schedule|time span"):
        parse_schedule(schedule)
