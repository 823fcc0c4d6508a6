"""The chart of lags: SVG inside the page, with the page's colours for light and dark mode."""

import io
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import nan
from typing import Any

# Placeholders for matplotlib, replaced with variables of the page's style.
_INK, _GRID = "#0a0b01", "#0a0b02"
_LINES = {"p50": ("#0a0b50", "o", "-"), "p95": ("#0a0b95", "s", "--"), "p99": ("#0a0b99", "^", ":")}
_VARIABLES = {_INK: "--ink", _GRID: "--line"} | {colour: f"--{name}" for name, (colour, _, _) in _LINES.items()}
_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
_THREE_FIGURES = 999.5  # a larger number has four figures when rounded
_TICKS = (1, 10, 100, _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, 24 * _HOUR, 168 * _HOUR)

# Hours between two labels, and the most labels that fit.
_STEPS = (1, 2, 3, 4, 6, 12, 24)
_LABELS = 7


def lag_chart(hours: Sequence[Mapping[str, Any]], name: str) -> str:
    """
    Return the percentiles of the lag over *hours* as an SVG element; its ids start with *name*.

    Units:   milliseconds.
    """
    # Imported here: the workers do not need it.
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import NullLocator  # noqa: PLC0415

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "busway", "font.size": 9, "text.color": _INK}):
        figure = Figure(figsize=(4.8, 2.3), layout="constrained")
        axes = figure.add_subplot()
        axes.set_yscale("log")
        known = {_hours_since(hours[0]["hour"], each["hour"]): each for each in hours}
        # An hour without arrivals interrupts the line: a line through it would show a lag that nobody measured.
        at = range(max(known) + 1)
        for percentile, (colour, marker, line) in _LINES.items():
            values = [max(known[hour][percentile], 1.0) if hour in known else nan for hour in at]
            axes.plot(at, values, color=colour, marker=marker, linestyle=line, markersize=3, label=percentile)
        first = int(hours[0]["hour"][-2:])
        axes.set_xticks(*_hours(first, len(at)))
        ticks = _ticks(min(each["p50"] for each in hours), max(each["p99"] for each in hours))
        axes.set_yticks(ticks, [duration(tick) for tick in ticks])
        axes.set_ylim(ticks[0] * 0.9, ticks[-1] * 1.1)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.grid(visible=True, axis="y", color=_GRID, linewidth=0.6)
        axes.tick_params(colors=_INK, which="both", length=2)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(_GRID)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=3, frameon=False, labelcolor=_INK)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _embedded(buffer.getvalue(), name)


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


def _ticks(lowest: float, highest: float) -> list[int]:
    """Return the round lengths of time from below *lowest* to above *highest*."""
    below = [tick for tick in _TICKS if tick <= lowest][-1:] or [_TICKS[0]]
    above = [tick for tick in _TICKS if tick >= highest][:1]
    return [*below, *(tick for tick in _TICKS if below[0] < tick < (above or [_TICKS[-1] + 1])[0]), *above]


def _hours(first: int, count: int) -> tuple[list[int], list[str]]:
    """Return the positions and labels of an axis of *count* hours that starts at the hour *first*."""
    every = next((step for step in _STEPS if count <= _LABELS * step), -(-count // _LABELS))
    at = [hour for hour in range(count) if (first + hour) % every == 0] or [0]
    return at, [f"{(first + hour) % 24:02}:00" for hour in at]


def _hours_since(first: str, hour: str) -> int:
    return round((datetime.fromisoformat(f"{hour}:00") - datetime.fromisoformat(f"{first}:00")).total_seconds() / 3600)


def _embedded(svg: str, name: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{name}-", svg)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    # The page has the description and the size.
    return re.sub(r'^<svg [^>]*?viewBox="([^"]+)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', svg)
