"""The positions between which messages are replayed."""

import re
from datetime import UTC, datetime
from typing import NamedTuple

from cli.durations import duration_of
from shared.errors import ConfigError, Problem

_AGO = re.compile(r"\d+(\.\d+)?(ms|s|m|h|d|w)")
START = "start"


class Position(NamedTuple):
    """A time in milliseconds since 1970 UTC, or a sequence number; neither for the start."""

    time: int | None = None
    number: int | None = None

    def is_before(self, number: int | None, time: int | None) -> bool:
        """Return whether a message with this number and enqueued time is at the position or behind it."""
        if self.number is not None:
            return number is not None and number >= self.number
        return self.time is None or (time is not None and time >= self.time)

    def is_after(self, number: int | None, time: int | None) -> bool:
        """Return whether a message is at the position or before it."""
        if self.number is not None:
            return number is not None and number <= self.number
        return self.time is None or (time is not None and time <= self.time)

    def is_behind(self, last: "Position") -> bool:
        """Return whether nothing can be between this position and *last*."""
        pairs = ((self.time, last.time), (self.number, last.number))
        return any(one is not None and other is not None and one > other for one, other in pairs)


def position_of(text: str, option: str, now: datetime) -> Position:
    """Return the position that *text* names: a sequence number, a time, a duration before *now*, or `start`."""
    if text == START:
        return Position()
    if text.isdigit():
        return Position(number=int(text))
    if _AGO.fullmatch(text):
        return Position(round((now - duration_of(text, option)).timestamp() * 1000))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "expected a time like 2026-11-23T08:00 (UTC), a duration like 2h, a sequence number, or start"
        raise ConfigError([Problem(f"{option} {text}", "is not a position", hint)]) from error
    return Position(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
