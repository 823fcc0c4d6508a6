"""Live progress of the demo: what is sent and what arrives."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console

from cli.demo.messages import Sample
from cli.demo.observations import Place, deliveries
from cli.progress import Bars

_SENT, _GOT = " sent ", " got "


class Watch(Bars):
    """Counts what is sent and what arrives, and shows it."""

    def __init__(self, console: Console, samples: Sequence[Sample]) -> None:
        """Show the progress of *samples* on *console*."""
        totals: Counter[str] = Counter(_sending(sample) for sample in samples)
        totals.update(_arriving(delivery.place) for sample in samples for delivery in deliveries(sample))
        self._totals = totals
        super().__init__(console, dict(sorted(totals.items())), self._text)

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

    def _text(self, counts: Mapping[str, int]) -> str:
        sent, arrived = (f"{_sum(counts, word):,} of {_sum(self._totals, word):,}" for word in (_SENT, _GOT))
        return f"sent {sent}, arrived {arrived}"


def _sum(counts: Mapping[str, int], word: str) -> int:
    return sum(count for name, count in counts.items() if word in name)


def _sending(sample: Sample) -> str:
    return f"{sample.site}{_SENT}{sample.pattern}"


def _arriving(place: Place) -> str:
    return f"{place.site}{_GOT}{place.entity.partition('/')[0]}"
