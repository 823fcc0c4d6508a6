"""
The one mechanism for synchronous and asynchronous clients.

Every decision is written once, as a generator ("steps"). It does no I/O: it yields each call that may wait as a `Call`,
and receives what the call returned or raised. `run` makes the calls in the current thread; `run_async` awaits those
that are awaitable, and moves those that would block the event loop to a thread. The synchronous classes and those in
`busway_clients.aio` are thin shells around the same steps.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeVar

from busway_clients.errors import WrongUse

Result = TypeVar("Result")


class Call(NamedTuple):
    """
    One call.

    Shape:  `run_async` makes act_async instead of act where there is one, and moves a call that blocks to a thread.
    """

    act: Callable[[], Any]
    act_async: Callable[[], Any] | None = None
    blocks: bool = False


Steps = Generator[Call, Any, Result]


class Lock(Protocol):
    """A lock of threading, or one of asyncio."""

    def acquire(self) -> Any:  # noqa: ANN401 - a bool, or an awaitable of it
        """Wait for the lock."""

    def release(self) -> None:
        """Release the lock."""

    def locked(self) -> bool:
        """Return whether the lock is held."""


class Condition(Protocol):
    """A condition of threading, or one of asyncio."""

    def acquire(self) -> Any:  # noqa: ANN401 - a bool, or an awaitable of it
        """Wait for the condition's lock."""

    def release(self) -> None:
        """Release the condition's lock."""

    def notify_all(self) -> None:
        """Wake all that wait."""

    @property
    def wait(self) -> Callable[..., Any]:
        """The method that waits for a notification; only threading's has a timeout."""


def run(steps: Steps[Result]) -> Result:
    """Run steps in this thread and return their result; raises WrongUse for a call that has to be awaited."""
    try:
        call = next(steps)
        while True:
            try:
                answer = call.act()
            except Exception as error:  # noqa: BLE001 - the steps decide what to do about it
                call = steps.throw(error)
            else:
                if hasattr(answer, "__await__"):
                    raise _not_awaited(answer)
                call = steps.send(answer)
    except StopIteration as end:
        returned: Result = end.value
        return returned
    finally:
        steps.close()


async def run_async(steps: Steps[Result], until: float | None = None) -> Result:
    """
    Run steps in this event loop and return their result.

    A call that has not returned by *until* is cancelled, and the steps receive a TimeoutError. When the task is
    cancelled the steps are closed: their `finally` blocks run, but must not yield. Units: until in seconds of
    time.monotonic(), None for no limit.
    """
    try:
        call = next(steps)
        while True:
            try:
                answer = await (_answer(call) if until is None else _answer_by(call, until))
            except Exception as error:  # noqa: BLE001 - the steps decide what to do about it
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        returned: Result = end.value
        return returned
    finally:
        steps.close()


def sleep(seconds: float) -> Call:
    """Return the call that sleeps."""
    return Call(lambda: time.sleep(seconds), lambda: asyncio.sleep(seconds))


def holding(lock: Lock | Condition, steps: Steps[Result]) -> Steps[Result]:
    """Run *steps* while holding *lock*."""
    yield Call(lock.acquire)
    try:
        return (yield from steps)
    finally:
        lock.release()


def wait_for_notification(condition: Condition, seconds: float) -> Call:
    """Return the call that waits for a condition whose lock is held, at most *seconds*."""

    async def wait() -> None:
        try:
            async with asyncio.timeout(seconds):
                await condition.wait()
        except TimeoutError:
            pass

    return Call(lambda: condition.wait(seconds), wait)


async def _answer_by(call: Call, until: float) -> Any:  # noqa: ANN401 - what an SDK returns
    async with asyncio.timeout(until - time.monotonic()):
        return await _answer(call)


async def _answer(call: Call) -> Any:  # noqa: ANN401 - what an SDK returns
    if call.blocks:
        return await asyncio.to_thread(call.act)
    answer = (call.act_async or call.act)()
    return await answer if inspect.isawaitable(answer) else answer


def _not_awaited(answer: Any) -> WrongUse:  # noqa: ANN401 - anything that can be awaited
    if inspect.iscoroutine(answer):
        answer.close()
    return WrongUse(
        f"a synchronous class of busway_clients: a call returned a {type(answer).__name__}, expected synchronous "
        "functions and SDK classes; use busway_clients.aio with those of asyncio"
    )
