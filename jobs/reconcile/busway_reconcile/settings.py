"""The settings of a run: its window, its limits, and where it reads and writes."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from busway_reconcile.journal.hours import hour_of, hours_between, start_of

LONGEST_HOLD = timedelta(hours=2)
"""The longest time that a task holds a batch, from its `received` records to their outcomes."""

HELD_HOURS = LONGEST_HOLD // timedelta(hours=1)


@dataclass(frozen=True)
class Window:
    """The hours of a run: records written from *start* to before *end*, both full hours (UTC)."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        """Raise ValueError for a window that does not consist of full hours."""
        for moment in (self.start, self.end):
            if moment.tzinfo is None or moment.astimezone(UTC) != moment.replace(minute=0, second=0, microsecond=0):
                raise ValueError(f"window from {self.start} to {self.end}: expected full hours in UTC")
        if self.start >= self.end:
            raise ValueError(f"window from {self.start} to {self.end}: expected the start to be before the end")

    @classmethod
    def of_day(cls, day: date) -> "Window":
        """Return the window of *day* in UTC."""
        start = datetime.combine(day, time(), UTC)
        return cls(start, start + timedelta(days=1))

    @classmethod
    def of_run(cls, name: str) -> "Window | None":
        """Return the window of the run with this *name*, or None if no run has such a name."""
        start, _, end = name.partition("--")
        try:
            return cls(start_of(start), start_of(end))
        except ValueError:
            return None

    @property
    def run(self) -> str:
        """The name of the run, the same each time it is repeated."""
        return f"{hour_of(self.start)}--{hour_of(self.end)}"

    @property
    def hours(self) -> list[str]:
        """The hours of the window."""
        return hours_between(self.start, self.end)


@dataclass(frozen=True)
class Settings:
    """The limits of a run."""

    grace: timedelta = LONGEST_HOLD
    """How long a message that has not arrived counts as in flight."""
    late_after: timedelta = timedelta(minutes=15)
    clock_tolerance: timedelta = timedelta(minutes=1)
    """How far the clocks of services and instances may differ."""
    open_for: timedelta = timedelta(days=7)
    """How long a run looks for messages that did not arrive, and for other copies of one that did."""
    writers_stopped: bool = False
    """Nothing writes to the journal any longer: its last hour is complete, though it is not over."""
    removed_taps: tuple[str, ...] = ()
    """Taps that were removed on purpose, as TASK=TARGET: they are no longer expected once they have no records."""
    refreeze: bool = False
    """Read the journal as it is now, although an earlier run of this window read it in another state."""


@dataclass(frozen=True)
class Run:
    """
    One run: its addresses, window, time and settings.

    Shape:   *journal* and *out* are absolute addresses; *now* decides which hours are over.
    """

    journal: str
    out: str
    window: Window
    now: datetime
    settings: Settings

    @property
    def compacted(self) -> str:
        """The folder of the compacted hours."""
        return f"{self.out}/compacted"

    @property
    def frozen(self) -> str:
        """The file that lists the raw files of this run."""
        return f"{self.out}/manifests/{self.window.run}.json"

    @property
    def folder(self) -> str:
        """The folder of the results."""
        return f"{self.out}/runs/{self.window.run}"

    @property
    def earliest(self) -> str:
        """The first hour in which this run looks for open messages and other copies."""
        return hour_of(self.window.start - self.settings.open_for)
