"""What synchronous clients wait with: threads, locks and events."""

import inspect
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import Any, Generic, ParamSpec, TypeVar

from busway_clients.errors import NotSynchronous

Lock = threading.Lock
Event = threading.Event

sleep = time.sleep

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def in_thread(act: Callable[Arguments, Result], *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
    """Call *act*, here: the caller waits in its own thread."""
    return act(*arguments, **options)


def threaded(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a method that blocks, as it is."""
    return method


def answer_of(answer: Any) -> Any:  # noqa: ANN401 - what an SDK or an application returns
    """Return what a call of the SDK or of the application returned; raises NotSynchronous if it must be awaited."""
    if not hasattr(answer, "__await__"):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    raise NotSynchronous(
        f"a synchronous class of busway_clients: a call returned a {type(answer).__name__}, expected synchronous "
        "functions and SDK classes; use busway_clients.aio with those of asyncio"
    )


def entered(sdk: Any) -> None:  # noqa: ANN401 - the SDK's receivers have no common type
    """Open the link of a receiver, as entering its context does."""
    answer_of((getattr(sdk, "__aenter__", None) or sdk.__enter__)())


def is_set_within(event: Event, seconds: float) -> bool:
    """Wait for *event* at most that long, and return whether it is set."""
    return event.wait(seconds)


def end_of(future: Future[Any]) -> Event:
    """Return an event that is set when *future*, of another thread, is done."""
    ended = Event()
    future.add_done_callback(lambda _: ended.set())
    return ended


def is_acquired_within(lock: threading.Lock, seconds: float | None) -> bool:
    """Acquire *lock* and return True, or False after *seconds*, None for no limit."""
    # In two steps: acquiring with a timeout is slower even if the lock is free.
    if lock.acquire(blocking=False):
        return True
    return lock.acquire(timeout=-1 if seconds is None else min(max(seconds, 0.0), threading.TIMEOUT_MAX))


class SideTask(Generic[Result]):
    """
    A call that runs in a thread beside its caller, who may stop waiting for it.

    The thread cannot be stopped, since the SDK may wait without limit for a peer that does not answer; it does not keep
    the process from ending.
    """

    def __init__(self, act: Callable[[], Result], name: str, discard: Callable[[Result], None] | None = None) -> None:
        """Start *act*; *discard* gets the result if the call was abandoned before it returned."""
        self.is_abandoned = False
        self.future: Future[Result] = Future()
        self._act = act
        self._discard = discard
        # With the caller's context, as a task of asyncio has it: the SDK traces a call below the application's span.
        threading.Thread(target=copy_context().run, args=(self._run,), name=name, daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether the call has returned or raised."""
        return self.future.done()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most that long, and return whether the call is done."""
        limit = None if seconds is None else min(max(seconds, 0.0), threading.TIMEOUT_MAX)
        return bool(wait([self.future], limit).done)

    def result(self) -> Result:
        """Return what the call returned or raise what it raised, once it is done."""
        return self.future.result()

    @property
    def error(self) -> BaseException | None:
        """What the call raised, once it is done; None if it returned."""
        return self.future.exception()

    def abandon(self) -> None:
        """Stop waiting for the call."""
        if not self.is_abandoned:
            self.is_abandoned = True
            self.future.add_done_callback(self._discard_result)

    def _run(self) -> None:
        try:
            self.future.set_result(self._act())
        except BaseException as error:  # noqa: BLE001 - raised in the caller that asks for the result
            self.future.set_exception(error)

    def _discard_result(self, future: Future[Result]) -> None:
        if self._discard is not None and future.exception() is None:
            self._discard(future.result())
