"""
The last good answer and when to ask again, without I/O.

1. An answer replaces another only if it is newer: a lower serial is an old copy, and an equal one with other contents
   comes from two writers who did not know of each other.
2. Whatever goes wrong, the endpoints from before stay; the state tells what is wrong and since how many attempts.
"""

from dataclasses import dataclass
from random import Random

from busway_clients.endpoints.endpoint import Answer, Endpoint, EndpointUnresolved, in_order

_MOST_DOUBLINGS = 10


@dataclass(frozen=True)
class EndpointState:
    """
    What a watch knows.

    Shape:  endpoints in the order to try them, none before the first good answer; error is the last attempt's.
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
    """The endpoints now and before, in the order to try them; none before the first."""

    before: tuple[Endpoint, ...]
    after: tuple[Endpoint, ...]
    site: str


class EndpointCache:
    """The pure half of a watch; times are seconds of any clock that does not run backwards."""

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
        Begin with *initial* endpoints, which the first answer replaces.

        An answer is used for its time to live, but not shorter than *shortest_seconds* nor longer than
        *longest_seconds*; after a failure the next attempt is due in *retry_seconds*, doubled for each further one.
        """
        self._endpoints = initial
        self._answer: Answer | None = None
        self._shortest = shortest_seconds
        self._longest = longest_seconds
        self._retry = retry_seconds
        self._random = Random() if random is None else random
        self._due: float | None = None
        self._confirmed: float | None = None
        self._failures = 0
        self._error: EndpointUnresolved | None = None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints to try in turn, none before the first good answer."""
        return self._endpoints

    @property
    def error(self) -> EndpointUnresolved | None:
        """What was wrong with the last attempt."""
        return self._error

    def due_in(self, now: float) -> float:
        """Return for how many seconds what is known may still be used."""
        return 0.0 if self._due is None else max(self._due - now, 0.0)

    def learned(self, answer: Answer, now: float) -> EndpointChange | None:
        """Take an answer; return what it changes. Raises EndpointUnresolved for one older than what is known."""
        known = self._answer
        is_other = known is None or (answer.site, answer.offers) != (known.site, known.offers)
        if known is not None and known.serial is not None and answer.serial is not None:
            if answer.serial < known.serial:
                raise EndpointUnresolved(f"an old copy: serial {answer.serial}, after {known.serial} was read before")
            if answer.serial == known.serial and is_other:
                raise EndpointUnresolved(
                    f"serial {answer.serial} was read before with other contents, expected a higher"
                )
        before = self._endpoints
        present = before[0] if before else None
        if is_other:
            self._endpoints = in_order(answer.offers, present, self._random)
        self._answer = answer
        self._confirmed = now
        self._due = now + min(max(answer.ttl_seconds, self._shortest), self._longest)
        self._failures = 0
        self._error = None
        return None if self._endpoints == before else EndpointChange(before, self._endpoints, answer.site)

    def failed(self, error: EndpointUnresolved, now: float) -> None:
        """Note that the source could not be used."""
        self._error = error
        self._failures += 1
        doublings = min(self._failures - 1, _MOST_DOUBLINGS)
        self._due = now + min(self._retry * 2**doublings, self._longest)

    def state(self, now: float) -> EndpointState:
        """Return what is known."""
        age = None if self._confirmed is None else now - self._confirmed
        answer = self._answer
        return EndpointState(
            self._endpoints,
            None if answer is None else answer.site,
            None if answer is None else answer.serial,
            age,
            self._failures,
            self._error,
        )
