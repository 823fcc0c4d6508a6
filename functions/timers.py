"""
The timers of the app: what it does every now and then beside the messages.

On Flex Consumption each timer is scaled by itself and pays a second for each run (Microsoft Learn, "Flex Consumption
plan"), so all duties that have no schedule of their own share one. An instance may end right after a run
(azure-functions-host 12007): what was measured is exported before the function returns.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

import azure.functions as func

from shared.assembly.measurements import EVERY_MINUTE
from shared.errors import BuswayError
from shared.printable import printable

_LOGGER = logging.getLogger("busway.timers")

NAME = "busway-minute"
_FLUSH_SECONDS = 10.0
# A timer does not call to the second.
_EARLY_SECONDS = 30.0


@dataclass(frozen=True)
class Duty:
    """Something to do at a schedule (NCRONTAB)."""

    name: str
    work: Callable[[], Awaitable[None]]
    schedule: str = EVERY_MINUTE
    is_at_start: bool = False
    """Whether it is also done, with the others of its schedule, when an instance starts."""


class DutyFailed(BuswayError):
    """A duty has failed, or a person must look at what it reports; the invocation counts as failed."""


def spaced(
    work: Callable[[], Awaitable[None]], seconds: float, now: Callable[[], float] = time.monotonic
) -> Callable[[], Awaitable[None]]:
    """Return *work* that a process does at most once in *seconds*; if it fails, the next call tries again."""
    last: float | None = None

    async def seldom() -> None:
        nonlocal last
        begun = now()
        if last is None or begun - last >= seconds - _EARLY_SECONDS:
            await work()
            last = begun

    return seldom


def register_timers(app: func.FunctionApp, duties: Iterable[Duty], flush: Callable[[float], None]) -> None:
    """Add a timer to *app* for each schedule; the host runs each in one instance, off the path of messages."""
    by_schedule: dict[str, list[Duty]] = {}
    for duty in duties:
        by_schedule.setdefault(duty.schedule, []).append(duty)
    for schedule, together in by_schedule.items():
        name = NAME if schedule == EVERY_MINUTE else together[0].name
        is_at_start = any(duty.is_at_start for duty in together)
        timer = app.timer_trigger(arg_name="timer", schedule=schedule, run_on_startup=is_at_start)
        decorated = timer(_timer(together, flush))
        app.function_name(name)(decorated)


def _timer(duties: Sequence[Duty], flush: Callable[[float], None]) -> Callable[[func.TimerRequest], Awaitable[None]]:
    async def run(timer: func.TimerRequest) -> None:
        if timer.past_due:
            _LOGGER.info("%s: the timer is past due; catching up now", ", ".join(duty.name for duty in duties))
        results = await asyncio.gather(*(duty.work() for duty in duties), return_exceptions=True)
        # It blocks, and batches of this process need their event loop.
        await asyncio.to_thread(flush, _FLUSH_SECONDS)
        failed = [(duty, error) for duty, error in zip(duties, results, strict=True) if error is not None]
        if failed:
            raise DutyFailed("; ".join(_text(duty, error) for duty, error in failed)) from failed[0][1]

    return run


def _text(duty: Duty, error: BaseException) -> str:
    if isinstance(error, BuswayError):
        return f"{duty.name}: {printable(str(error))}"
    # The text of a foreign error may have a connection string.
    return f"{duty.name}: unexpected {type(error).__name__}"
