"""The results of the last 30 nights, from the summaries of earlier runs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from busway_reconcile.judge.verdicts import FINDINGS
from busway_reconcile.settings import Window
from busway_reconcile.storage import Storage
from busway_reconcile.summary import CLEAN, COULD_NOT_DECIDE, FOUND, Summary, add_counts

NIGHTS = 30

_DAY = timedelta(days=1)
_RESULTS = {CLEAN: ("✓", "clean"), FOUND: ("✗", "findings"), COULD_NOT_DECIDE: ("?", "could not decide")}


@dataclass(frozen=True)
class Night:
    """The result of one day; a day without a run has no exit code and no messages. Units: milliseconds."""

    day: date
    exit_code: int | None = None
    messages: int = 0
    verdicts: Mapping[str, int] = field(default_factory=dict)
    slowest_p99: float | None = None

    @property
    def mark(self) -> str:
        """Its result as one character."""
        return _RESULTS[self.exit_code][0] if self.exit_code in _RESULTS else "·"

    @property
    def result(self) -> str:
        """Its result in words."""
        return _RESULTS[self.exit_code][1] if self.exit_code in _RESULTS else "no result"

    @property
    def found(self) -> int:
        """The number of its messages with a finding."""
        return sum(self.verdicts.get(kind, 0) for kind in FINDINGS)


@dataclass(frozen=True)
class Trend:
    """The nights up to that of a run: NIGHTS of them, in order, fewer only before the first result."""

    nights: Sequence[Night]

    @property
    def known(self) -> list[Night]:
        """The nights that have a result."""
        return [night for night in self.nights if night.exit_code is not None]

    @property
    def without_result(self) -> list[date]:
        """The nights between the first and the last that have no result."""
        return [night.day for night in self.nights if night.exit_code is None]

    def earlier(self, kind: str, run: Summary) -> str:
        """Return in how many earlier nights there was a finding of *kind*."""
        before = [night for night in self.known if night.day.isoformat() != run.start[:10]]
        if not before:
            return ""
        nights = f"{len(before)} night{'' if len(before) == 1 else 's'} before"
        count = sum(kind in night.verdicts for night in before)
        return f"Also found in {count} of the {nights}." if count else f"New: not found in the {nights}."

    def heights(self, name: str) -> list[float | None]:
        """Return `messages` or `found` of each night as a share of the most; `found` on a logarithmic scale."""
        values = [float(getattr(night, name)) for night in self.nights]
        if name == "found":
            values = [math.log10(1 + 9 * value) for value in values]
        most = max(values)
        return [value / most if value else None for value in values]

    def bars(self, values: Sequence[float | None]) -> str:
        """
        Return the bars of *values*, one for each night, as an SVG element that fills its box.

        Shape:   values from 0 to 1; None has no bar.
        """
        bars = "".join(
            f'<rect class="is-{night.exit_code}" '
            f'x="{10 * at + 1.5:g}" y="{100 - height:g}" width="7" height="{height:g}"/>'
            for at, (night, value) in enumerate(zip(self.nights, values, strict=True))
            # A night with a small value shows a bar all the same.
            if value and (height := max(round(100 * value, 1), 4.0))
        )
        box = f'viewBox="0 0 {10 * len(self.nights)} 100" preserveAspectRatio="none"'
        return f'<svg {box} aria-hidden="true">{bars}</svg>'


def read_trend(storage: Storage, runs: str, summary: Summary) -> Trend:
    """Return the trend up to the run of *summary* from the folder *runs*; only runs of a whole day count."""
    last = datetime.fromisoformat(summary.end).date() - _DAY
    known = {}
    for name in storage.folders(runs):
        day = _day_of(name)
        if day is not None and last - NIGHTS * _DAY < day <= last and name != summary.run:
            night = _read(storage, f"{runs}/{name}/summary.json", day)
            if night is not None:
                known[day] = night
    if (day := _day_of(summary.run)) is not None:
        known[day] = night_of(json.loads(summary.to_json()), day)
    if not known:
        return Trend([])
    first = min(known)
    return Trend(
        [known.get(first + number * _DAY, Night(first + number * _DAY)) for number in range((last - first).days + 1)]
    )


def night_of(summary: Mapping[str, Any], day: date) -> Night:
    """Return the night of *summary*, the content of a summary.json of this or an earlier version."""
    verdicts = add_counts(task["verdicts"] for task in summary["tasks"])
    return Night(
        day,
        int(summary["exit_code"]),
        sum(verdicts.values()) - verdicts.get("orphan", 0),
        verdicts,
        max((task["lag_milliseconds"]["p99"] for task in summary["tasks"] if task["lag_milliseconds"]), default=None),
    )


def _read(storage: Storage, path: str, day: date) -> Night | None:
    # The run itself reports an unreadable summary; here the night has no result.
    try:
        return night_of(json.loads(storage.read(path)), day) if storage.exists(path) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _day_of(run: str) -> date | None:
    """Return the day of a run that is named like one of a whole day, or None."""
    window = Window.of_run(run)
    is_day = window is not None and window.start.hour == 0 and window.end - window.start == _DAY
    return window.start.date() if window is not None and is_day else None
