"""What a run is told: its window and where it draws the lines."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from jobs.reconcile.inputs import hour_of, hours_between

LONGEST_HOLD = timedelta(hours=2)
"""No task holds a batch for longer, between the records of what it received and of what became of it."""


@dataclass(frozen=True)
class Window:
    """The records of a run: those that were written from *start* to before *end*, both full hours (UTC)."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        """Raise ValueError for a window that does not consist of hours."""
        for moment in (self.start, self.end):
            if moment.tzinfo is None or moment.astimezone(UTC) != moment.replace(minute=0, second=0, microsecond=0):
                raise ValueError(f"window from {self.start} to {self.end}, expected full hours in UTC")
        if self.start >= self.end:
            raise ValueError(f"window from {self.start} to {self.end}, expected it to begin before it ends")

    @classmethod
    def of_day(cls, day: date) -> "Window":
        """Return the window of *day* in UTC."""
        start = datetime.combine(day, time(), UTC)
        return cls(start, start + timedelta(days=1))

    @property
    def run(self) -> str:
        """The name of the run, the same whenever it is repeated."""
        return f"{hour_of(self.start)}--{hour_of(self.end)}"

    @property
    def hours(self) -> list[str]:
        """The hours of the window."""
        return hours_between(self.start, self.end)


@dataclass(frozen=True)
class Settings:
    """Where a run draws its lines."""

    grace: timedelta = LONGEST_HOLD
    """How long a message that has not arrived counts as in flight."""
    late_after: timedelta = timedelta(minutes=15)
    clock_tolerance: timedelta = timedelta(minutes=1)
    """By how much the clocks of services and instances may differ."""
    open_for: timedelta = timedelta(days=7)
    """How long messages that did not arrive are looked for, and how far back the other copies of one are."""
    writers_stopped: bool = False
    """Nothing writes to the journal any more: its last hour is complete, though it is not over."""
    refreeze: bool = False
    """Take the journal as it is now, although an earlier run of this window saw it otherwise."""
