"""Times and durations as the core counts them: in milliseconds, times since 1970 UTC."""

import time
from datetime import timedelta
from typing import overload

from shared.clock import Clock, SystemClock


def milliseconds(clock: Clock) -> int:
    """Return the clock's time."""
    if type(clock) is SystemClock:
        # The same without a datetime, which takes 0.5 µs of each message that is sent, received or settled.
        return time.time_ns() // 1_000_000
    return int(clock.now().timestamp() * 1000)


@overload
def in_milliseconds(duration: timedelta) -> int: ...
@overload
def in_milliseconds(duration: timedelta | None) -> int | None: ...
def in_milliseconds(duration: timedelta | None) -> int | None:
    """Return a duration as a number, None for one that never ends."""
    return None if duration is None else duration // timedelta(milliseconds=1)
