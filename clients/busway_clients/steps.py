"""
One flow for both kinds of the SDK.

A flow is a generator. It yields each call that may wait as a `Call`, and is sent what the call returned or raised.
`run` makes the calls where they stand, `run_async` awaits those that are awaitable and takes those that would block the
event loop to a thread. So every decision is written once, and no flow knows which SDK it drives.
"""

import asyncio
import inspect
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from busway_clients.errors import WrongUse

Result = TypeVar("Result")


class Call(NamedTuple):
    """
    One call.

    Shape:  where a flow runs asynchronously, act_async is made instead of act, and a call that blocks goes to a thread.
    """

    act: Callable[[], Any]
    act_async: Callable[[], Any] | None = None
    blocks: bool = False


Steps = Generator[Call, Any, Result]


def run(steps: Steps[Result]) -> Result:
    """Run a flow in this thread and return what it returns; raises WrongUse where a call wants to be awaited."""
    try:
        call = next(steps)
        while True:
            try:
                answer = call.act()
            except Exception as error:  # noqa: BLE001 - the flow decides what is to be made of it
                call = steps.throw(error)
            else:
                if hasattr(answer, "__await__"):
                    raise _unawaited(answer)
                call = steps.send(answer)
    except StopIteration as end:
        returned: Result = end.value
        return returned
    finally:
        steps.close()


async def run_async(steps: Steps[Result], until: float | None = None) -> Result:
    """
    Run a flow in this event loop and return what it returns.

    A call that has not returned by *until* is cancelled, and the flow is sent a TimeoutError. Units: until in seconds
    of time.monotonic(), None for no end.
    """
    try:
        call = next(steps)
        while True:
            try:
                answer = await (_answer(call) if until is None else _answer_by(call, until))
            except Exception as error:  # noqa: BLE001 - the flow decides what is to be made of it
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        returned: Result = end.value
        return returned
    finally:
        steps.close()


def wait(seconds: float) -> Call:
    """Return the call that waits."""
    return Call(lambda: time.sleep(seconds), lambda: asyncio.sleep(seconds))


async def _answer_by(call: Call, until: float) -> Any:  # noqa: ANN401 - what an SDK returns
    async with asyncio.timeout(until - time.monotonic()):
        return await _answer(call)


async def _answer(call: Call) -> Any:  # noqa: ANN401 - what an SDK returns
    if call.blocks:
        return await asyncio.to_thread(call.act)
    answer = (call.act_async or call.act)()
    return await answer if inspect.isawaitable(answer) else answer


def _unawaited(answer: Any) -> WrongUse:  # noqa: ANN401 - whatever may be awaited
    if inspect.iscoroutine(answer):
        answer.close()
    return WrongUse(
        f"a call of a synchronous class: has returned a {type(answer).__name__} that nobody awaits, expected "
        "a function and classes of the SDK that are synchronous; those of asyncio go with busway_clients.aio"
    )
