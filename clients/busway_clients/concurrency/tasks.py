"""What asynchronous clients wait with: tasks, locks and events of asyncio."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, ParamSpec, TypeVar

Lock = asyncio.Lock
Event = asyncio.Event

sleep = asyncio.sleep
in_thread = asyncio.to_thread

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def threaded(method: Callable[Arguments, Result]) -> Callable[Arguments, Coroutine[Any, Any, Result]]:
    """Return a method that blocks as one to be awaited, which blocks a thread instead."""

    @functools.wraps(method)
    async def awaited(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return await in_thread(method, *arguments, **options)

    return awaited


async def answer_of(answer: Any) -> Any:  # noqa: ANN401 - what an SDK or an application returns
    """Return what a call of the SDK or of the application returned, or awaits."""
    return await answer if inspect.isawaitable(answer) else answer


async def entered(sdk: Any) -> None:  # noqa: ANN401 - the SDK's receivers have no common type
    """Open the link of a receiver, as entering its context does."""
    await answer_of((getattr(sdk, "__aenter__", None) or sdk.__enter__)())


async def is_set_within(event: Event, seconds: float) -> bool:
    """Wait for *event* at most that long, and return whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def end_of(future: Future[Any]) -> Event:
    """Return an event that is set when *future*, of a thread, is done."""
    loop, ended = asyncio.get_running_loop(), Event()

    def end(_: object) -> None:
        # The loop may have been closed in the meantime.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(ended.set)

    future.add_done_callback(end)
    return ended


async def is_acquired_within(lock: Lock, seconds: float | None) -> bool:
    """Acquire *lock* and return True, or False after *seconds*, None for no limit."""
    if seconds is None:
        return await lock.acquire()
    # Also a lock that is free may be promised to somebody who waits.
    try:
        async with asyncio.timeout(seconds):
            return await lock.acquire()
    except TimeoutError:
        return False


class SideTask(Generic[Result]):
    """A call that runs beside its caller, who may stop waiting for it."""

    def __init__(
        self,
        act: Callable[[], Awaitable[Result]],
        name: str,
        discard: Callable[[Result], Awaitable[None]] | None = None,
    ) -> None:
        """Start *act*; *discard* gets the result if the call was abandoned before it returned."""
        self.is_abandoned = False
        self._task = asyncio.ensure_future(act())
        if isinstance(self._task, asyncio.Task):
            self._task.set_name(name)
        self._discard = discard

    @property
    def is_done(self) -> bool:
        """Whether the call has returned or raised."""
        return self._task.done()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait at most that long, and return whether the call is done."""
        await asyncio.wait({self._task}, timeout=None if seconds is None else max(seconds, 0.0))
        return self._task.done()

    def result(self) -> Result:
        """Return what the call returned or raise what it raised, once it is done."""
        return self._task.result()

    @property
    def error(self) -> BaseException | None:
        """What the call raised, once it is done; None if it returned or was cancelled."""
        return None if self._task.cancelled() else self._task.exception()

    async def abandon(self) -> None:
        """Cancel the call, and wait until it has ended."""
        self.is_abandoned = True
        self._task.cancel()
        (outcome,) = await asyncio.gather(self._task, return_exceptions=True)
        if self._discard is not None and not isinstance(outcome, BaseException):
            await self._discard(outcome)
