"""What stands in the way of a task: told when it comes, when it changes and when it is gone, not at every attempt."""

import logging
from collections.abc import Mapping

from shared.clock import Clock
from shared.errors import BuswayError, MessageRejected, TargetUnavailable
from shared.protocols import Telemetry

_LOGGER = logging.getLogger("busway.pipeline")


class Obstacles:
    """The obstacles of one task, by the place in whose way they stand; they outlive the batch that met them."""

    def __init__(self, task: str, clock: Clock, telemetry: Telemetry | None = None) -> None:
        """Name *task* in the log, and tell *telemetry* too."""
        self._task = task
        self._clock = clock
        self._telemetry = telemetry
        self._standing: dict[str, tuple[str, float]] = {}

    def note(self, attempted: Mapping[str, BuswayError | None]) -> None:
        """Log what has changed, given what an attempt at each place came to: None where all went well."""
        for place, error in attempted.items():
            standing = self._standing.get(place)
            if error is None:
                if standing is not None:
                    del self._standing[place]
                    seconds = self._clock.monotonic() - standing[1]
                    _LOGGER.info("%s: %s is in the way no more, after %.0f s", self._task, place, seconds)
                    self._tell(place, None)
                continue
            if isinstance(error, MessageRejected):
                continue  # it is the message's, and the batch is not held for it
            state = _state(error)
            if standing is None or standing[0] != state:
                since = self._clock.monotonic() if standing is None else standing[1]
                self._standing[place] = (state, since)
                log = _LOGGER.warning if isinstance(error, TargetUnavailable) else _LOGGER.error
                log("%s: the batch is held and tried again: %s", self._task, error)
                self._tell(place, error)

    def _tell(self, place: str, error: BuswayError | None) -> None:
        if self._telemetry is not None:
            self._telemetry.obstacle(place, error)


def _state(error: BuswayError) -> str:
    """Return what makes an obstacle another one: an outage has many faces, a refusal is about what it says."""
    return "unavailable" if isinstance(error, TargetUnavailable) else str(error)
