"""
How fast a task sends: what all its batches share, of all lanes and partitions of an instance.

1. `limits.rate` gives each batch its turn: it begins when those before it may have been sent at that rate. A batch
   reserves nothing while it waits: one that gives up at its deadline would leave its turn unused.
2. A target that is busy says for how long (`server-busy`). Until then no batch sends to it: otherwise each lane would
   ask it on its own, and keep it busy.
"""

from datetime import timedelta

from shared.errors import TargetUnavailable
from shared.line.routing import Target

# However long a target says: a batch that begins later tries by itself.
_LONGEST_BUSY_SECONDS = 30.0


class Pace:
    """The rate of a task, and which of its targets are busy."""

    def __init__(self, rate: float | None) -> None:
        """Send *rate* messages per second at most, None: as many as possible."""
        self._rate = rate
        self._free_at = 0.0
        self._busy: dict[Target, tuple[float, TargetUnavailable]] = {}

    def turn(self, count: int, now: float) -> float:
        """Return 0 if *count* messages may be sent now, which takes the turn, or the seconds until the next turn."""
        if self._rate is None:
            return 0.0
        if self._free_at > now:
            return self._free_at - now
        self._free_at = now + count / self._rate
        return 0.0

    def note(self, target: Target, error: TargetUnavailable, now: float) -> None:
        """Remember that *target* is busy, if the *error* says for how long."""
        if error.retry_after is not None:
            seconds = min(error.retry_after.total_seconds(), _LONGEST_BUSY_SECONDS)
            self._busy[target] = now + seconds, error

    def refusal(self, target: Target, now: float) -> TargetUnavailable | None:
        """Return the error of a busy target, with the time that is left, None once that time has passed."""
        until, error = self._busy.get(target, (0.0, None))
        if error is None:
            return None
        if until <= now:
            del self._busy[target]
            return None
        return TargetUnavailable(str(error), retry_after=timedelta(seconds=until - now))
