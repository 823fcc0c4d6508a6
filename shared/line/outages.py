"""
Outages of a task's targets and stores: logged when one begins, when it changes and when it ends.

How long a delivery waits before the next attempt at such a place is decided here too.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping

from shared.clock import Clock
from shared.errors import BuswayError, LockLost, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.deadline import Deadline
from shared.printable import printable
from shared.protocols import Telemetry

_LOGGER = logging.getLogger("busway.pipeline")

FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 5.0
# A person has to act before it can go on, and people take longer than networks.
FIRST_REFUSED_WAIT_SECONDS = 1.0
LONGEST_REFUSED_WAIT_SECONDS = 60.0


class Outages:
    """The current outages of one task by target or store, across batches."""

    def __init__(self, task: str, clock: Clock, telemetry: Telemetry | None = None) -> None:
        """Log with the name of *task*, and report to *telemetry* too."""
        self._task = task
        self._clock = clock
        self._telemetry = telemetry
        self._present: dict[str, tuple[str, float]] = {}

    async def ask[T](self, deadline: Deadline, place: str, question: Callable[[float], Awaitable[T]], /) -> T:
        """
        Repeat a question to a store or service until there is an answer.

        Raises: the last error, TargetUnavailable or TargetRefused, when *deadline* has passed; LockLost at once.
        """
        attempts = 0
        while True:
            try:
                answer = await question(deadline.attempt_seconds)
            except LockLost:  # it does not come back
                raise
            except (TargetUnavailable, TargetRefused) as error:
                attempts += 1
                self.note({place: error})
                if not await deadline.pause(wait_seconds(error, attempts)):
                    raise
            else:
                self.note({place: None})
                return answer

    def note(self, attempts: Mapping[str, BuswayError | None]) -> None:
        """Log the changes, given the error of an attempt at each place, None if it succeeded."""
        for place, error in attempts.items():
            outage = self._present.get(place)
            if error is None:
                if outage is not None:
                    del self._present[place]
                    seconds = self._clock.monotonic() - outage[1]
                    _LOGGER.info("%s: %s recovered after %.0f s", self._task, place, seconds)
                    self._report(place, None)
                continue
            if isinstance(error, MessageRejected):
                continue  # the message is at fault, and the batch does not wait for it
            kind = _kind(error)
            if outage is None or outage[0] != kind:
                since = self._clock.monotonic() if outage is None else outage[1]
                self._present[place] = (kind, since)
                log = _LOGGER.warning if isinstance(error, TargetUnavailable) else _LOGGER.error
                log("%s: the batch waits and is retried: %s", self._task, printable(str(error)))
                self._report(place, error)

    def _report(self, place: str, error: BuswayError | None) -> None:
        if self._telemetry is not None:
            self._telemetry.outage(place, error)


def _kind(error: BuswayError) -> str:
    """Return the value that distinguishes outages: for a refusal its text; texts of unavailability vary too much."""
    return "unavailable" if isinstance(error, TargetUnavailable) else str(error)


def wait_seconds(error: BuswayError, attempts: int) -> float:
    """Return how long to wait after *attempts* that ended with *error*."""
    if isinstance(error, TargetUnavailable):
        requested = error.retry_after.total_seconds() if error.retry_after is not None else 0.0
        return max(requested, _growing(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, attempts))
    return _growing(FIRST_REFUSED_WAIT_SECONDS, LONGEST_REFUSED_WAIT_SECONDS, attempts)


def _growing(first: float, longest: float, attempts: int) -> float:
    return float(min(first * 2 ** min(attempts - 1, 20), longest))
