"""Live progress: bars in a terminal, a line every few seconds elsewhere."""

import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.demo.messages import Sample
from cli.demo.observations import Place, deliveries

_LINE_SECONDS = 5.0
_SENT, _GOT = " sent ", " got "


class Watch:
    """Counts what is sent and what arrives, and shows it."""

    def __init__(self, console: Console, samples: Sequence[Sample]) -> None:
        """Show the progress of *samples* on *console*."""
        self._console = console
        totals: Counter[str] = Counter(_sending(sample) for sample in samples)
        totals.update(_arriving(each.place) for sample in samples for each in deliveries(sample))
        self._totals = totals
        self._counts: Counter[str] = Counter()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bars = {name: self._progress.add_task(name, total=total) for name, total in sorted(totals.items())}
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        """Start the display."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the display."""
        self._progress.stop()
        if not self._console.is_terminal:
            self._print_line()

    def sent(self, samples: Sequence[Sample]) -> None:
        """Count *samples* as sent."""
        self._advance(_sending(samples[0]), len(samples))

    def arrived(self, place: Place) -> None:
        """Count a message that has arrived at *place* as expected."""
        self._advance(_arriving(place), 1)

    def _advance(self, name: str, count: int) -> None:
        self._counts[name] += count
        self._progress.advance(self._bars[name], count)
        if not self._console.is_terminal and time.monotonic() - self._last_line >= _LINE_SECONDS:
            self._print_line()

    def _print_line(self) -> None:
        self._last_line = time.monotonic()
        seconds = self._last_line - self._started
        self._console.print(f"{seconds:4.0f} s  sent {self._count(_SENT)}, arrived {self._count(_GOT)}")

    def _count(self, word: str) -> str:
        names = [name for name in self._totals if word in name]
        return f"{sum(self._counts[name] for name in names):,} of {sum(self._totals[name] for name in names):,}"


def _sending(sample: Sample) -> str:
    return f"{sample.site}{_SENT}{sample.pattern}"


def _arriving(place: Place) -> str:
    return f"{place.site}{_GOT}{place.entity.partition('/')[0]}"
