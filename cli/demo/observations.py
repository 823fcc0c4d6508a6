"""What the applications received, what is still expected, and the progress of both."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.console import Console

from cli.demo.messages import EAST, PAIR, WEST, Pattern, Sample
from cli.progress import Bars
from shared.message.message import Message

APPLICATION = "application"
EVENTS = f"{Pattern.ALL_ACTIVE}/Subscriptions/{APPLICATION}"
PAYMENTS = f"{Pattern.ACTIVE_PASSIVE}/Subscriptions/{APPLICATION}"
JOBS = str(Pattern.SPILLOVER)
AUXILIARY = "jobs-auxiliary"

ENTITIES: Mapping[Pattern, Sequence[str]] = {
    Pattern.ALL_ACTIVE: (EVENTS,),
    Pattern.ACTIVE_PASSIVE: (PAYMENTS,),
    Pattern.SPILLOVER: (JOBS, AUXILIARY),
}
"""The entities that applications receive from, by pattern."""


class Place(NamedTuple):
    """An entity of a site that an application receives from."""

    site: str
    entity: str

    def __str__(self) -> str:
        """Return the name that journals and logs use."""
        return f"{self.site}/{self.entity}"


class Delivery(NamedTuple):
    """A message that an application should receive, and whether it is a copy."""

    message_id: str
    place: Place
    is_copy: bool


@dataclass(frozen=True)
class Receipt:
    """A message that an application has completed."""

    place: Place
    message_id: str
    message: Message


class Observations:
    """Collects receipts while the demo runs."""

    def __init__(self, samples: Sequence[Sample], on_arrival: Callable[[Place], None]) -> None:
        """Expect the deliveries of *samples*, and report each one that arrives."""
        self.samples: Mapping[str, Sample] = {sample.message_id: sample for sample in samples}
        self.receipts: list[Receipt] = []
        self.abandoned: dict[tuple[str, str], list[int]] = {}
        """By message id and site: when the consumer abandoned it, in milliseconds since 1970."""
        self.progressed = asyncio.Event()
        self._missing = {(delivery.message_id, delivery.place) for sample in samples for delivery in deliveries(sample)}
        self._on_arrival = on_arrival

    @property
    def is_complete(self) -> bool:
        """Whether every expected message has arrived."""
        return not self._missing

    def note(self, receipt: Receipt) -> None:
        """Record a receipt."""
        self.receipts.append(receipt)
        key = (receipt.message_id, receipt.place)
        if key in self._missing:
            self._missing.remove(key)
            self._on_arrival(receipt.place)
        self.progressed.set()

    def note_failure(self, message_id: str, site: str, milliseconds: int) -> None:
        """Record that a consumer abandoned a message."""
        self.abandoned.setdefault((message_id, site), []).append(milliseconds)
        self.progressed.set()


def deliveries(sample: Sample) -> Iterator[Delivery]:
    """Yield the places where the message must arrive, once each."""
    own, pair = sample.site, PAIR[sample.site]
    match sample.pattern:
        case Pattern.ALL_ACTIVE:
            yield Delivery(sample.message_id, Place(own, EVENTS), is_copy=False)
            yield Delivery(sample.message_id, Place(pair, EVENTS), is_copy=True)
        case Pattern.ACTIVE_PASSIVE:
            yield Delivery(sample.message_id, Place(WEST, PAYMENTS), is_copy=False)
            yield Delivery(sample.message_id, Place(EAST, PAYMENTS), is_copy=True)
        case Pattern.SPILLOVER:
            place = (Place(own, JOBS), Place(pair, JOBS), Place(pair, AUXILIARY))[sample.failures]
            yield Delivery(sample.message_id, place, is_copy=sample.failures > 0)


_SENT, _GOT = " sent ", " got "


class Watch(Bars):
    """Counts what is sent and what arrives, and shows it."""

    def __init__(self, console: Console, samples: Sequence[Sample]) -> None:
        """Show the progress of *samples* on *console*."""
        totals: Counter[str] = Counter(_sending(sample) for sample in samples)
        totals.update(_arriving(delivery.place) for sample in samples for delivery in deliveries(sample))

        def text(counts: Mapping[str, int]) -> str:
            sent, arrived = (f"{_sum(counts, word):,} of {_sum(totals, word):,}" for word in (_SENT, _GOT))
            return f"sent {sent}, arrived {arrived}"

        super().__init__(console, dict(sorted(totals.items())), text)

    def __exit__(self, *_: object) -> None:
        """Stop the display, and print the counts at the end."""
        super().__exit__()
        self.print_line()

    def sent(self, samples: Sequence[Sample]) -> None:
        """Count *samples* as sent."""
        self.advance(_sending(samples[0]), len(samples))

    def arrived(self, place: Place) -> None:
        """Count a message that has arrived at *place* as expected."""
        self.advance(_arriving(place), 1)


def _sum(counts: Mapping[str, int], word: str) -> int:
    return sum(count for name, count in counts.items() if word in name)


def _sending(sample: Sample) -> str:
    return f"{sample.site}{_SENT}{sample.pattern}"


def _arriving(place: Place) -> str:
    return f"{place.site}{_GOT}{place.entity.partition('/')[0]}"
