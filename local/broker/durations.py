"""ISO 8601 durations in the form of the services' configuration."""

import re
from datetime import timedelta

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
# TimeSpan.MaxValue of .NET, which Azure writes for "never".
_NEVER = timedelta(days=10_675_199)


def parse_duration(text: str) -> timedelta | None:
    """
    Return the duration, None for an infinite one.

    Raises:  ValueError for other text, and for years and months, which have no fixed length.

    >>> parse_duration("P1DT12H")
    datetime.timedelta(days=1, seconds=43200)
    """
    match = _DURATION.fullmatch(text)
    if match is None or text == "P":
        raise ValueError("expected an ISO 8601 duration such as PT1M or P14D")
    try:
        duration = timedelta(**{unit: float(count) for unit, count in match.groupdict().items() if count})
    except OverflowError:
        return None
    return None if duration >= _NEVER else duration


def format_span(duration: timedelta) -> str:
    """
    Return the text of a duration as .NET writes it in messages.

    >>> format_span(timedelta(minutes=10)), format_span(timedelta(seconds=64.98))
    ('00:10:00', '00:01:04.9800000')
    """
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = f"{duration.days}." if duration.days else ""
    fraction = f".{duration.microseconds * 10:07}" if duration.microseconds else ""
    return f"{days}{hours:02}:{minutes:02}:{seconds:02}{fraction}"


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
