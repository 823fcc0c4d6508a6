"""ISO 8601 durations as the services' configuration writes them."""

import re
from datetime import timedelta

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
# TimeSpan.MaxValue of .NET, which Azure writes for "never".
_NEVER = timedelta(days=10_675_199)


def parse_duration(text: str) -> timedelta | None:
    """
    Return the duration, None for one that never ends.

    Raises:  ValueError for what is none; years and months, which have no fixed length, are none here.

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
