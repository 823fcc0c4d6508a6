"""
What the applications of the drill observed, and the figures that follow.

1. A message is lost if a site accepted it and no consumer received it.
2. A duplicate is a delivery of a message that was processed before; the consumer recognizes its id and skips it.
3. The order of a session breaks when a number is processed after a higher one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Delivery:
    """A message that a consumer received: from which site, at which second of the drill."""

    number: int
    session: str
    site: str
    second: float


@dataclass
class Observations:
    """The sends and deliveries, in seconds of the drill."""

    accepted: dict[int, tuple[str, float]] = field(default_factory=dict)
    """The site that accepted a message, and when, by its number."""
    failed_sends: list[float] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    processed: set[int] = field(default_factory=set)

    def note(self, delivery: Delivery) -> None:
        """Record a delivery."""
        self.deliveries.append(delivery)
        self.processed.add(delivery.number)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was accepted has been processed."""
        return self.processed >= self.accepted.keys()

    def first_accepted(self, site: str, after: float) -> float | None:
        """Return when *site* first accepted a message after a second."""
        times = (second for place, second in self.accepted.values() if place == site and second >= after)
        return min(times, default=None)

    def first_delivered(self, site: str, sessions: Sequence[str], after: float) -> float | None:
        """Return when the last of the consumers received its first message from *site* after a second."""
        firsts: dict[str, float] = {}
        for delivery in self.deliveries:
            if delivery.site == site and delivery.second >= after:
                firsts.setdefault(delivery.session, delivery.second)
        return max(firsts.values()) if firsts.keys() >= set(sessions) else None


@dataclass(frozen=True)
class Tally:
    """The figures of a drill."""

    accepted: int
    processed: int
    lost: Sequence[int]
    duplicates: Mapping[str, int]
    """By the site that delivered the message again."""
    order_breaks: int


def tally(observations: Observations) -> Tally:
    """Return the figures of *observations*."""
    seen: set[int] = set()
    highest: dict[str, int] = {}
    duplicates: dict[str, int] = {}
    order_breaks = 0
    for delivery in observations.deliveries:
        if delivery.number in seen:
            duplicates[delivery.site] = duplicates.get(delivery.site, 0) + 1
            continue
        seen.add(delivery.number)
        order_breaks += delivery.number < highest.get(delivery.session, -1)
        highest[delivery.session] = max(highest.get(delivery.session, -1), delivery.number)
    lost = sorted(observations.accepted.keys() - seen)
    return Tally(len(observations.accepted), len(seen), lost, duplicates, order_breaks)
