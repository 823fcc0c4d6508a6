"""Durations as the commands read and print them: 90s, 2h, 7d."""

import re
from datetime import timedelta

from shared.errors import ConfigError, Problem

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d|w)")


def duration_of(text: str, option: str) -> timedelta:
    """Return a duration such as 90s, 30m, 2h or 7d; raises ConfigError."""
    match = _AGE.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigError([Problem(f"{option} {text}", "is not a duration", "expected for example 90s, 30m, 2h or 7d")])
    try:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    except OverflowError as error:
        raise ConfigError([Problem(f"{option} {text}", "is longer than a duration may be")]) from error


def age_text(seconds: float) -> str:
    """Return a duration for people, to two digits or so."""
    for unit in ("d", "h", "m"):
        if seconds >= 2 * _UNITS[unit] or (unit == "m" and seconds >= _UNITS[unit]):
            return f"{seconds / _UNITS[unit]:.0f} {'min' if unit == 'm' else unit}"
    return f"{seconds:.0f} s"
