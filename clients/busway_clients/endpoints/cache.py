"""
The last good answer of a source, and when to read the source again, without I/O.

1. An answer replaces another only if it is newer. A lower serial is an old copy; the same serial with other contents
   comes from two writers that conflict.
2. After an error the last good endpoints stay; the state has the error and the number of failed attempts.
"""

from dataclasses import dataclass
from random import Random

from busway_clients.endpoints.endpoint import Answer, Endpoint, EndpointUnresolved, order_endpoints

_MOST_DOUBLINGS = 10


@dataclass(frozen=True)
class EndpointState:
    """
    The state of a watch.

    Shape:  endpoints in the order to try them, empty before the first good answer; error is that of the last attempt.
    Units:  age_seconds since the endpoints were last confirmed, None if they never were.
    """

    endpoints: tuple[Endpoint, ...]
    site: str | None
    serial: int | None
    age_seconds: float | None
    failures: int
    error: EndpointUnresolved | None


@dataclass(frozen=True)
class EndpointChange:
    """The old and new endpoints, in the order to try them; *before* is empty for the first answer."""

    before: tuple[Endpoint, ...]
    after: tuple[Endpoint, ...]
    site: str


class EndpointCache:
    """
    The part of a watch without I/O; times are seconds of a monotonic clock.

    *endpoints* are to be tried in turn, none before the first good answer; *error* is that of the last attempt.
    """

    def __init__(
        self,
        *,
        initial: tuple[Endpoint, ...] = (),
        shortest_seconds: float = 5.0,
        longest_seconds: float = 300.0,
        retry_seconds: float = 5.0,
        random: Random | None = None,
    ) -> None:
        """
        Start with *initial* endpoints, which the first answer replaces.

        An answer is used for its time to live, but at least *shortest_seconds* and at most *longest_seconds*. After a
        failure the next attempt is due in *retry_seconds*, which doubles with each further failure.
        """
        self.endpoints = initial
        self._answer: Answer | None = None
        self._shortest = shortest_seconds
        self._longest = longest_seconds
        self._retry = retry_seconds
        self._random = Random() if random is None else random
        self._due: float | None = None
        self._confirmed: float | None = None
        self._failures = 0
        self.error: EndpointUnresolved | None = None

    def due_in(self, now: float) -> float:
        """Return in how many seconds the source must be read again."""
        return 0.0 if self._due is None else max(self._due - now, 0.0)

    def update(self, answer: Answer, now: float) -> EndpointChange | None:
        """Store an answer and return what it changes; raises EndpointUnresolved if it is older than the last one."""
        known = self._answer
        is_new = known is None or (answer.site, answer.offers) != (known.site, known.offers)
        if known is not None and known.serial is not None and answer.serial is not None:
            if answer.serial < known.serial:
                raise EndpointUnresolved(f"an old copy: has serial {answer.serial}, but {known.serial} was read before")
            if answer.serial == known.serial and is_new:
                raise EndpointUnresolved(
                    f"serial {answer.serial} was read before with other contents, expected a higher serial"
                )
        before = self.endpoints
        present = before[0] if before else None
        if is_new:
            self.endpoints = order_endpoints(answer.offers, present, self._random)
        self._answer = answer
        self._confirmed = now
        self._due = now + min(max(answer.ttl_seconds, self._shortest), self._longest)
        self._failures = 0
        self.error = None
        return None if self.endpoints == before else EndpointChange(before, self.endpoints, answer.site)

    def failed(self, error: EndpointUnresolved, now: float) -> None:
        """Record that the source could not be read."""
        self.error = error
        self._failures += 1
        doublings = min(self._failures - 1, _MOST_DOUBLINGS)
        self._due = now + min(self._retry * 2**doublings, self._longest)

    def state(self, now: float) -> EndpointState:
        """Return the state."""
        age = None if self._confirmed is None else now - self._confirmed
        answer = self._answer
        return EndpointState(
            self.endpoints,
            None if answer is None else answer.site,
            None if answer is None else answer.serial,
            age,
            self._failures,
            self.error,
        )
