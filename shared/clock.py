"""The clock as an argument."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The present time and a stopwatch."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start, never running backwards."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """Return the machine's time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's stopwatch in seconds."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only by `advance`, so that a test can wait an hour at once."""

    def __init__(self, start: datetime) -> None:
        """Begin at *start*, which must be aware."""
        if start.tzinfo is None:
            raise ValueError(f"ManualClock: start must be an aware datetime, got {start!r}")
        self._start = start.astimezone(UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        """Return the start plus everything advanced so far."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move forward by *seconds*; a negative step is a ValueError."""
        if seconds < 0:
            raise ValueError(f"ManualClock: cannot go back by {-seconds} s")
        self._elapsed += seconds
