"""Questions to stores and services, repeated while a delivery may wait."""

from collections.abc import Awaitable, Callable

from shared.errors import TargetRefused, TargetUnavailable
from shared.line.deadline import Deadline
from shared.line.outages import OutageLog
from shared.line.sending import wait_seconds


class Questions:
    """The questions of one task."""

    def __init__(self, outages: OutageLog) -> None:
        """Log in *outages* who does not answer."""
        self._outages = outages

    async def ask[T](self, deadline: Deadline, place: str, question: Callable[[float], Awaitable[T]], /) -> T:
        """Repeat the question until there is an answer; raises the last error when *deadline* has passed."""
        attempts = 0
        while True:
            try:
                answer = await question(deadline.attempt_seconds)
            except (TargetUnavailable, TargetRefused) as error:
                attempts += 1
                self._outages.note({place: error})
                if not await deadline.pause(wait_seconds(error, attempts)):
                    raise
            else:
                self._outages.note({place: None})
                return answer
