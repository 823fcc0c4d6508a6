"""
When a client leaves the endpoint where it is for another, without I/O.

1. It leaves when the first of the wanted endpoints is in another namespace than the present one.
2. It does not leave while something is held there (a message that was received and not settled), but for no longer
   than `drain_seconds`: a namespace that is away lets nothing be settled, and what is held there is delivered again.
3. It opens the new link before it closes the old one. If none can be opened, it stays, and tries again later.
"""

from enum import Enum

from busway_clients.endpoints.endpoint import Endpoint


class Step(Enum):
    """What to do before the next use."""

    STAY = "stay"
    DRAIN = "drain"
    MOVE = "move"


class Moorings:
    """Where a client is, and where it should be."""

    def __init__(self, drain_seconds: float, retry_seconds: float) -> None:
        """Wait *drain_seconds* at most for what is held, *retry_seconds* after endpoints that could not be opened."""
        self.present: Endpoint | None = None
        self._drain_seconds = drain_seconds
        self._retry_seconds = retry_seconds
        self._wanted: tuple[Endpoint, ...] = ()
        self._wanted_since = 0.0
        self._refused: tuple[Endpoint, ...] = ()
        self._refused_until = 0.0

    def step(self, wanted: tuple[Endpoint, ...], held: int, now: float) -> Step:
        """Return what to do; *held* is what is not settled at the present endpoint."""
        if self.present is None:
            return Step.MOVE
        if wanted[0].namespace == self.present.namespace:
            self._wanted = ()
            return Step.STAY
        if wanted == self._refused and now < self._refused_until:
            return Step.STAY
        if wanted != self._wanted:
            self._wanted, self._wanted_since = wanted, now
        return Step.DRAIN if held and self.patience(now) > 0 else Step.MOVE

    def patience(self, now: float) -> float:
        """Return for how many seconds more to wait for what is held."""
        return max(self._wanted_since + self._drain_seconds - now, 0.0)

    def choices(self, wanted: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """Return the endpoints to open in turn: those that come before the present one."""
        if self.present is None or self.present not in wanted:
            return wanted
        return wanted[: wanted.index(self.present)]

    def moved(self, endpoint: Endpoint, wanted: tuple[Endpoint, ...], now: float) -> None:
        """Note that the client is at *endpoint* now."""
        self.present = endpoint
        self._wanted = ()
        if endpoint.namespace != wanted[0].namespace:
            self.refused(wanted, now)

    def refused(self, wanted: tuple[Endpoint, ...], now: float) -> None:
        """Note that the first of *wanted* could not be opened."""
        self._refused, self._refused_until = wanted, now + self._retry_seconds
