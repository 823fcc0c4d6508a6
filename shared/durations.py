"""Durations: as people write them (80ms, 90s, 5m, 2h, 7d), in the ISO 8601 of the services, and as .NET writes them."""

import re
from datetime import timedelta

SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SHORT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|m|h|d|w)", re.ASCII)
_ISO = re.compile(
    r"P(?=[T\d])(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
# TimeSpan.MaxValue of .NET, which Azure writes for "never".
_NEVER = timedelta(days=10_675_199)
_TIMESPAN = re.compile(r"(-)?(?:(\d+)\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,7}))?)?")
_MAX_HOUR = 23
_MAX_SIXTIETH = 59


def written(text: str) -> timedelta | None:
    """Return the duration that *text* is, None for other text; raises OverflowError for one that is too long."""
    stripped = text.strip()
    if (short := _SHORT.fullmatch(stripped.lower())) is not None:
        return timedelta(seconds=float(short[1]) * SECONDS[short[2]])
    if (iso := _ISO.fullmatch(stripped.upper())) is not None:
        return _sum(iso)
    return None


def parse_duration(text: str) -> timedelta | None:
    """
    Return the duration of the services' configuration, None for an infinite one.

    Raises:  ValueError for other text, and for years and months, which have no fixed length.

    >>> parse_duration("P1DT12H")
    datetime.timedelta(days=1, seconds=43200)
    """
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError("expected an ISO 8601 duration such as PT1M or P14D")
    try:
        duration = _sum(match)
    except OverflowError:
        return None
    return None if duration >= _NEVER else duration


def format_duration(duration: timedelta | None) -> str:
    """
    Return the text of a duration as the services write it; None is their largest, which means never.

    >>> format_duration(timedelta(days=1, minutes=2, seconds=1.5))
    'P1DT2M1.5S'
    """
    if duration is None:
        return "P10675199DT2H48M5.4775807S"
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f"{seconds + duration.microseconds / 1_000_000:.6f}".rstrip("0").rstrip(".")
    time = "".join(f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M")) if count)
    time += f"{fraction}S" if fraction != "0" else ""
    if duration.days:
        return f"P{duration.days}DT{time}" if time else f"P{duration.days}D"
    return f"PT{time or '0S'}"


def parse_timespan(text: str) -> timedelta:
    """
    Return the duration of a .NET TimeSpan in host.json or a retry policy; a ValueError for anything else.

    Source:  .NET "Standard TimeSpan format strings", the constant format `[-][d.]hh:mm:ss[.fffffff]`.

    >>> parse_timespan("1.02:03:04.5")
    datetime.timedelta(days=1, seconds=7384, microseconds=500000)
    """
    match = _TIMESPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a time span, expected d.hh:mm:ss.fff")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    if int(hours) > _MAX_HOUR or int(minutes) > _MAX_SIXTIETH or int(seconds or 0) > _MAX_SIXTIETH:
        raise ValueError(f"{text!r} is not a time span: hours end at 23, minutes and seconds at 59")
    microseconds = int((fraction or "0").ljust(7, "0")) // 10
    duration = timedelta(int(days or 0), int(seconds or 0), microseconds, 0, int(minutes), int(hours))
    return -duration if sign else duration


def format_timespan(duration: timedelta) -> str:
    """
    Return the text of a duration as .NET writes it in messages.

    >>> format_timespan(timedelta(minutes=10)), format_timespan(timedelta(seconds=64.98))
    ('00:10:00', '00:01:04.9800000')
    """
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = f"{duration.days}." if duration.days else ""
    fraction = f".{duration.microseconds * 10:07}" if duration.microseconds else ""
    return f"{days}{hours:02}:{minutes:02}:{seconds:02}{fraction}"


def _sum(iso: re.Match[str]) -> timedelta:
    return timedelta(**{unit: float(count) for unit, count in iso.groupdict().items() if count})
