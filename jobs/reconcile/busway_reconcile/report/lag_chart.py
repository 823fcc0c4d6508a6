"""The chart of lags: SVG inside the page, with the page's colours for light and dark mode."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
_THREE_FIGURES = 999.5  # a larger number has four figures when rounded
_TICKS = (1, 10, 100, _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, 24 * _HOUR, 168 * _HOUR)

# Hours between two labels, and the most labels that fit.
_STEPS = (1, 2, 3, 4, 6, 12, 24)
_LABELS = 7

# The box of the SVG and the corners of the plot in it: its text is readable on a phone.
_WIDTH, _HEIGHT = 340, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 334.0, 24.0, 160.0
_LEGEND = (("p50", 60), ("p95", 150), ("p99", 240))


class _Scale(NamedTuple):
    """Where an hour and a lag are in the box."""

    hours: int
    lowest: float
    highest: float

    def x(self, hour: float) -> float:
        return (_LEFT + _RIGHT) / 2 if self.hours == 1 else _LEFT + 6 + hour / (self.hours - 1) * (_RIGHT - _LEFT - 12)

    def y(self, milliseconds: float) -> float:
        share = math.log(max(milliseconds, self.lowest) / self.lowest) / math.log(self.highest / self.lowest)
        return _BOTTOM - share * (_BOTTOM - _TOP)


def lag_chart(hours: Sequence[Mapping[str, Any]]) -> str:
    """
    Return the percentiles of the lag over *hours* as an SVG element.

    Units:   milliseconds.
    """
    known = {_hours_since(hours[0]["hour"], hour["hour"]): hour for hour in hours}
    count = max(known) + 1
    ticks = _ticks(min(hour["p50"] for hour in hours), max(hour["p99"] for hour in hours))
    scale = _Scale(count, ticks[0], ticks[-1])
    parts = [_grid(scale.y(tick), duration(tick)) for tick in ticks]
    first = int(hours[0]["hour"][-2:])
    parts += [
        f'<text x="{scale.x(at):.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{label}</text>'
        for at, label in zip(*_hours(first, count), strict=True)
    ]
    for name, left in _LEGEND:
        points = {hour: (scale.x(hour), scale.y(each[name])) for hour, each in known.items()}
        lines = "".join(_line(points, hour) for hour in range(count) if hour - 1 not in points)
        marks = "".join(_mark(name, *point) for point in points.values())
        legend = f'<path d="M{left} 9h24"/>{_mark(name, left + 12, 9)}<text x="{left + 30}" y="12.5">{name}</text>'
        parts.append(f'<g class="{name}">{lines}{marks}{legend}</g>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" class="lags" aria-hidden="true">{"".join(parts)}</svg>'


def duration(milliseconds: float) -> str:
    """Return a length of time in the largest unit that it fills."""
    # A value that rounds up to one of the next unit is shown in that unit.
    if round(milliseconds) < _SECOND:
        return f"{milliseconds:.0f} ms"
    for unit, name, most in ((_SECOND, "s", 60), (_MINUTE, "min", 60)):
        if float(f"{milliseconds / unit:.3g}") < most:
            return f"{milliseconds / unit:.3g} {name}"
    hours = milliseconds / _HOUR
    return f"{hours:.3g} h" if hours < _THREE_FIGURES else f"{hours:,.0f} h"


def _grid(y: float, label: str) -> str:
    return (
        f'<path class="grid" d="M{_LEFT} {y:.1f}H{_RIGHT}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>'
    )


def _line(points: Mapping[int, tuple[float, float]], first: int) -> str:
    """Return the line through the hours from *first* on, up to one without arrivals: nobody measured a lag there."""
    joined = []
    while first in points:
        joined.append("{:.1f} {:.1f}".format(*points[first]))
        first += 1
    return f'<path d="M{"L".join(joined)}"/>' if len(joined) > 1 else ""


def _mark(name: str, x: float, y: float) -> str:
    """Return the mark of a percentile: a form of its own, for whom the colours are equal."""
    match name:
        case "p50":
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>'
        case "p95":
            return f'<rect x="{x - 2:.1f}" y="{y - 2:.1f}" width="4" height="4"/>'
        case _:
            return f'<path class="mark" d="M{x:.1f} {y - 3:.1f}l3 5h-6z"/>'


def _ticks(lowest: float, highest: float) -> list[int]:
    """Return the round lengths of time from below *lowest* to above *highest*, at least two."""
    below = [at for at, tick in enumerate(_TICKS[:-1]) if tick <= lowest][-1:] or [0]
    above = [at for at, tick in enumerate(_TICKS) if tick >= highest][:1] or [len(_TICKS) - 1]
    return list(_TICKS[below[0] : max(above[0], below[0] + 1) + 1])


def _hours(first: int, count: int) -> tuple[list[int], list[str]]:
    """Return the positions and labels of an axis of *count* hours that starts at the hour *first*."""
    every = next((step for step in _STEPS if count <= _LABELS * step), -(-count // _LABELS))
    at = [hour for hour in range(count) if (first + hour) % every == 0] or [0]
    return at, [f"{(first + hour) % 24:02}:00" for hour in at]


def _hours_since(first: str, hour: str) -> int:
    return round((datetime.fromisoformat(f"{hour}:00") - datetime.fromisoformat(f"{first}:00")).total_seconds() / 3600)
