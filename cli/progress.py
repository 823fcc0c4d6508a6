"""Progress on standard error, and the end of a run by a signal."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shared.resend.run import Result, Run

_LINE_SECONDS = 5.0


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* for the first Ctrl-C or SIGTERM; the second one ends the process at once."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def first() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        typer.echo("stopping after this step; press Ctrl-C again to end at once", err=True)
        stop()

    try:
        for number in numbers:
            loop.add_signal_handler(number, first)
    except (ValueError, RuntimeError):
        pass  # not in the main thread: a caller in a test ends the run in another way
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, RuntimeError):
            for number in numbers:
                loop.remove_signal_handler(number)


@contextlib.contextmanager
def progress(verb: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """
    Yield what counts messages: a bar in a terminal, a line every few seconds elsewhere, both on standard error.

    *total* is None if it is not known.
    """
    of = "" if total is None else f"/{total:,}"
    console = Console(stderr=True, highlight=False, markup=False)
    columns: Any = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task(verb, total=total)
        started = printed = time.monotonic()
        done = 0

        def advance(count: int) -> None:
            nonlocal printed, done
            done += count
            bars.advance(bar, count)
            now = time.monotonic()
            if not console.is_terminal and now - printed >= _LINE_SECONDS:
                printed = now
                typer.echo(f"{now - started:4.0f} s  {done:,}{of} {verb}", err=True)

        yield advance


async def run_to_end(make: Callable[[Callable[[int], None]], Run], verb: str, total: int | None) -> Result:
    """Run what *make* returns, with progress and until a signal stops it."""
    with progress(verb, total) as advance:
        run = make(advance)
        with stopped_by_signals(run.stop):
            return await run.run()
