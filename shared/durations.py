"""Durations as people write them: 80ms, 90s, 5m, 2h, 7d, or in ISO 8601."""

import re
from datetime import timedelta

SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SHORT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|m|h|d|w)", re.ASCII)
_ISO = re.compile(
    r"p(?=[t\d])(?:(\d{1,9})d)?(?:t(?=\d)(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,6})?)s)?)?", re.ASCII
)


def written(text: str) -> timedelta | None:
    """Return the duration that *text* is, None for other text; raises OverflowError for one that is too long."""
    lower = text.strip().lower()
    if (short := _SHORT.fullmatch(lower)) is not None:
        return timedelta(seconds=float(short[1]) * SECONDS[short[2]])
    if (iso := _ISO.fullmatch(lower)) is not None:
        days, hours, minutes, seconds = (float(number or 0) for number in iso.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return None
