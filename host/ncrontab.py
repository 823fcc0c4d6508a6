"""
NCRONTAB: the schedule of a timer trigger, six fields from seconds to days of the week.

Source: atifaziz/NCrontab, NCrontab.Advanced's six-field form as Azure Functions uses it: `{second} {minute} {hour}
{day} {month} {day-of-week}`; a day must match both day fields. Also a TimeSpan between runs.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from shared.durations import parse_timespan

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("second", 0, 59, ()),
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 6, _DAYS),
)
_HORIZON = 366 * 8  # days; a 29 February is never further away


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of a timer: the values allowed for each field, or an interval."""

    fields: tuple[frozenset[int], ...] = ()
    interval: timedelta | None = None

    def next_after(self, moment: datetime) -> datetime | None:
        """
        Return the first time after *moment* that matches, None for a date that never occurs.

        >>> parse_schedule("0 30 9 * * mon-fri").next_after(datetime(2026, 11, 20, 10))
        datetime.datetime(2026, 11, 23, 9, 30)
        """
        if self.interval is not None:
            return moment + self.interval
        seconds, minutes, hours, days, months, weekdays = self.fields
        time = moment.replace(microsecond=0) + timedelta(seconds=1)
        day = time.replace(hour=0, minute=0, second=0)
        for _ in range(_HORIZON):
            if day.month in months and day.day in days and day.isoweekday() % 7 in weekdays:
                for hour in sorted(hours):
                    for minute in sorted(minutes):
                        if day.replace(hour=hour, minute=minute, second=59) < time:
                            continue
                        for second in sorted(seconds):
                            candidate = day.replace(hour=hour, minute=minute, second=second)
                            if candidate >= time:
                                return candidate
            day += timedelta(days=1)
        return None


def parse_schedule(text: str) -> Schedule:
    """Return the schedule, or a ValueError that names the invalid field."""
    parts = text.split()
    if len(parts) == 1 and ":" in text:
        interval = parse_timespan(text)
        if interval <= timedelta():
            raise ValueError(f"schedule {text!r}: expected a time span above zero")
        return Schedule(interval=interval)
    if len(parts) == len(_FIELDS) - 1:
        parts.insert(0, "0")
    if len(parts) != len(_FIELDS):
        raise ValueError(f"schedule {text!r}: {len(parts)} fields, expected second minute hour day month day-of-week")
    return Schedule(tuple(_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)))


def _field(text: str, name: str, low: int, high: int, names: tuple[str, ...]) -> frozenset[int]:
    values: set[int] = set()
    for part in text.lower().split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        try:
            start = low if span == "*" else _number(first, low, names)
            stop = high if span == "*" or (step and not last) else _number(last or first, low, names)
            stride = int(step) if step else 1
        except ValueError:
            raise ValueError(f"schedule: invalid {name} {part!r}") from None
        if not low <= start <= stop <= high or stride < 1:
            raise ValueError(f"schedule: invalid {name} {part!r}, expected {low} to {high}")
        values.update(range(start, stop + 1, stride))
    return frozenset(values)


def _number(text: str, low: int, names: tuple[str, ...]) -> int:
    return names.index(text) + low if text in names else int(text)
