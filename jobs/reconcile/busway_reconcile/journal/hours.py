"""Hours (UTC) as folders and columns name them: 2026-11-20T23."""

from datetime import UTC, datetime, timedelta

_HOUR = "%Y-%m-%dT%H"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SETTLE = timedelta(minutes=10)
"""How long after its end an hour may still be written to."""


def hour_of(moment: datetime) -> str:
    """Return the hour that *moment* lies in."""
    return moment.astimezone(UTC).strftime(_HOUR)


def start_of(hour: str) -> datetime:
    """Return the first moment of *hour*."""
    return datetime.strptime(hour, _HOUR).replace(tzinfo=UTC)


def hours_between(start: datetime, end: datetime) -> list[str]:
    """Return the hours that begin at *start* or later and before *end*."""
    count = max(int((end - start) / timedelta(hours=1)), 0)
    return [hour_of(start + timedelta(hours=number)) for number in range(count)]


def is_closed(hour: str, now: datetime) -> bool:
    """Return whether the files of *hour* are complete."""
    return now >= start_of(hour) + timedelta(hours=1) + SETTLE


def micros_of(moment: datetime) -> int:
    """Return *moment* in microseconds since 1970."""
    return round(moment.timestamp() * 1_000_000)


def moment_of(micros: int) -> datetime:
    """Return the moment *micros* microseconds after 1970."""
    return EPOCH + timedelta(microseconds=micros)
