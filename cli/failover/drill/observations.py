"""
What the drill's applications saw, and what that amounts to.

1. Lost is what a site has accepted and no consumer ever got.
2. A duplicate is a delivery of what had been processed before; a consumer knows it by its id and skips it.
3. The order of a session breaks where a number is processed after a higher one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Delivery:
    """A message that a consumer got, from which site, at which second of the drill."""

    number: int
    session: str
    site: str
    second: float


@dataclass
class Observations:
    """Collects what is sent and what arrives; seconds are the drill's."""

    accepted: dict[int, tuple[str, float]] = field(default_factory=dict)
    """The site that accepted a message, and when, by its number."""
    failed_sends: list[float] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    processed: set[int] = field(default_factory=set)

    def note(self, delivery: Delivery) -> None:
        """Take down a delivery."""
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
        """Return when the last of the consumers got its first message from *site* after a second."""
        firsts: dict[str, float] = {}
        for each in self.deliveries:
            if each.site == site and each.second >= after:
                firsts.setdefault(each.session, each.second)
        return max(firsts.values()) if firsts.keys() >= set(sessions) else None


@dataclass(frozen=True)
class Tally:
    """The sum of it all."""

    accepted: int
    processed: int
    lost: Sequence[int]
    duplicates: Mapping[str, int]
    """By the site that delivered once more."""
    order_breaks: int


def tally(observations: Observations) -> Tally:
    """Return what *observations* amount to."""
    seen: set[int] = set()
    highest: dict[str, int] = {}
    duplicates: dict[str, int] = {}
    order_breaks = 0
    for each in observations.deliveries:
        if each.number in seen:
            duplicates[each.site] = duplicates.get(each.site, 0) + 1
            continue
        seen.add(each.number)
        order_breaks += each.number < highest.get(each.session, -1)
        highest[each.session] = max(highest.get(each.session, -1), each.number)
    lost = sorted(observations.accepted.keys() - seen)
    return Tally(len(observations.accepted), len(seen), lost, duplicates, order_breaks)
