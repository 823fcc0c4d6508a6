"""Progress of what is counted, and of a run."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.signals import stopped_by_signals
from shared.resend.run import Result, Run

_LINE_SECONDS = 5.0


class Bars:
    """Counts by name: a bar for each in a terminal, a line of text every few seconds elsewhere."""

    def __init__(
        self, console: Console, totals: Mapping[str, int | None], line: Callable[[Mapping[str, int]], str]
    ) -> None:
        """Show the progress towards *totals*, None if one is not known; *line* makes the text of the counts."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._console = console
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bars = {name: self._progress.add_task(name, total=total) for name, total in totals.items()}
        self._line = line
        self._counts: Counter[str] = Counter()
        self._started = self._printed = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self, name: str, count: int) -> None:
        """Add to the count of a name."""
        self._counts[name] += count
        self._progress.advance(self._bars[name], count)
        if time.monotonic() - self._printed >= _LINE_SECONDS:
            self.print_line()

    def print_line(self) -> None:
        """Print the counts, unless there are bars."""
        self._printed = time.monotonic()
        if not self._console.is_terminal:
            self._console.print(f"{self._printed - self._started:4.0f} s  {self._line(self._counts)}")


@contextlib.contextmanager
def progress(verb: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield what counts messages on standard error; *total* is None if it is not known."""
    of = "" if total is None else f"/{total:,}"
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    with Bars(console, {verb: total}, lambda counts: f"{counts[verb]:,}{of} {verb}") as bars:
        yield lambda count: bars.advance(verb, count)


async def run_to_end(run: Run, verb: str, total: int | None) -> Result:
    """Run to the end, with progress, or until a signal stops it."""
    with progress(verb, total) as run.progress, stopped_by_signals(run.stop):
        return await run.run()
