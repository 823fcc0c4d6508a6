"""Durations as the commands read and print them: 90s, 2h, 7d."""

from datetime import timedelta

from shared.durations import SECONDS, written
from shared.errors import ConfigError, Problem


def duration_of(text: str, option: str) -> timedelta:
    """Return a duration such as 90s, 30m, 2h, 7d or PT90S; raises ConfigError."""
    try:
        found = written(text)
    except OverflowError as error:
        raise ConfigError([Problem(f"{option} {text}", "is longer than a duration may be")]) from error
    if found is None:
        raise ConfigError([Problem(f"{option} {text}", "is not a duration", "expected for example 90s, 30m, 2h or 7d")])
    return found


def age_text(seconds: float) -> str:
    """Return a duration for people, to two digits or so."""
    for unit in ("d", "h", "m"):
        if seconds >= 2 * SECONDS[unit] or (unit == "m" and seconds >= SECONDS[unit]):
            return f"{seconds / SECONDS[unit]:.0f} {'min' if unit == 'm' else unit}"
    return f"{seconds:.0f} s"
