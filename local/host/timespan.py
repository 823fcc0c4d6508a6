"""
The text form of a .NET TimeSpan, as host.json and retry policies write it.

Source: .NET "Standard TimeSpan format strings", the constant format `[-][d.]hh:mm:ss[.fffffff]`.
"""

import re
from datetime import timedelta

_TIMESPAN = re.compile(r"(-)?(?:(\d+)\.)?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,7}))?)?")
_MAX_HOUR = 23
_MAX_SIXTIETH = 59


def parse_timespan(text: str) -> timedelta:
    """
    Return the duration; a ValueError for anything else.

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
