"""How the work of a command runs: with other work, and until a signal ends it, at once or after what it has in hand."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import typer


def run_until_signalled[T](work: Coroutine[Any, Any, T], stop: Callable[[], None] | None = None) -> T | None:
    """
    Run *work* to its end and return its result; None if SIGINT, SIGTERM or SIGHUP cancels it.

    With *stop* the first signal calls that instead, and the second ends the process at once.
    """

    async def main() -> T | None:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

        def stop_once() -> None:
            for number in signals:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)
            if stop is not None:
                stop()

        for number in signals:
            loop.add_signal_handler(number, task.cancel if stop is None else stop_once)
        try:
            return await task
        except asyncio.CancelledError:
            return None
        finally:
            # A second Ctrl-C ends the process at once.
            for number in signals:
                loop.remove_signal_handler(number)

    return asyncio.run(main())


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

    # Not in the main thread, a caller in a test ends the run in another way.
    with contextlib.suppress(ValueError, RuntimeError):
        for number in numbers:
            loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, RuntimeError):
            for number in numbers:
                loop.remove_signal_handler(number)


async def together(*work: Coroutine[Any, Any, object]) -> None:
    """Run all of *work*; the first error cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as errors:
        first: Exception = errors
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def beside[T](background: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T:
    """Return what *work* returns and end *background*, whose error is raised when it comes first."""
    tending, working = asyncio.ensure_future(background), asyncio.ensure_future(work)
    try:
        await asyncio.wait((tending, working), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await tending
        return await working
    finally:
        for task in (tending, working):
            task.cancel()
        await asyncio.gather(tending, working, return_exceptions=True)
