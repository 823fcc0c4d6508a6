"""Times of the status: milliseconds since 1970 in reports, ISO 8601 in what readers get."""

from datetime import UTC, datetime


def iso(time: datetime) -> str:
    """Return a time in ISO 8601, in UTC, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(milliseconds: int) -> datetime:
    """Return the time that is *milliseconds* after 1970, UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def milliseconds(time: datetime) -> int:
    """Return a time in milliseconds since 1970."""
    return round(time.timestamp() * 1000)
