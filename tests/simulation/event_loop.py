"""An event loop with virtual time, whose ready callbacks run in an order drawn from a seed."""

import asyncio
import contextlib
import heapq
import itertools
import random
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol

_MOST_STEPS = 300_000
"""A history has some thousand; one with more goes round in circles."""


class Calendar(Protocol):
    """What has deadlines beside the timers of the loop, such as the locks of a broker."""

    def next_deadline(self) -> float | None:
        """Return the time of the next deadline, in the seconds of the loop."""
        ...

    def advance(self) -> None:
        """Do everything that is due."""
        ...


class Owner(Protocol):
    """Part of the history that may be killed, with all that it was doing."""

    @property
    def is_dead(self) -> bool:
        """Return whether its callbacks do not run any more."""
        ...


OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)
"""The owner of the code that runs, None for what cannot be killed."""


class Handle:
    """What asyncio knows of a callback; its own handles keep more, and take twice the time."""

    __slots__ = ("_at", "args", "callback", "context", "is_cancelled")

    def __init__(
        self, callback: Callable[..., object], args: Sequence[Any], context: Context | None, at: float
    ) -> None:
        """Call *callback* at a time, in its context."""
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False
        self._at = at

    def cancel(self) -> None:
        """Do not call it."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Return whether it is not to be called."""
        return self.is_cancelled

    def when(self) -> float:
        """Return its time."""
        return self._at


class _Tasks(dict[asyncio.Task[Any], None]):
    """Tasks in the order in which they began, with what a group asks of a set."""

    def add(self, task: asyncio.Task[Any]) -> None:
        """As `set.add`."""
        self[task] = None

    def discard(self, task: asyncio.Task[Any]) -> None:
        """As `set.discard`."""
        self.pop(task, None)


class OrderedTaskGroup(asyncio.TaskGroup):
    """Cancels its tasks in the order in which they began; in a set they have that of their addresses."""

    def __init__(self) -> None:
        """Have no task."""
        super().__init__()
        self._tasks = _Tasks()  # type: ignore[assignment] # in asyncio it is a set, used as this


class Stuck(Exception):
    """Nothing will happen any more, or too much has."""


class SeededLoop(asyncio.AbstractEventLoop):
    """
    Runs callbacks that are ready one at a time, in any order.

    asyncio runs them in the order in which they became ready; nothing may depend on that, as it is the order of packets
    and threads. Time stands still while anything is ready, and then leaps to the next timer.
    """

    def __init__(self, chance: random.Random, calendar: Calendar | None = None) -> None:
        """Draw the order from *chance*; the time begins at 0."""
        self.calendar = calendar
        self._chance = chance.random
        self._now = 0.0
        self._ready: list[Handle] = []
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = itertools.count()
        self._is_running = False
        self._tasks: list[asyncio.Task[Any]] = []
        self.steps = 0
        self.failures: list[BaseException] = []

    def time(self) -> float:
        """Return the virtual seconds that have passed."""
        return self._now

    def run_until(self, is_over: Callable[[], bool], limit: float) -> bool:
        """
        Run until *is_over* when nothing is ready, or until the time *limit*; return whether it is over.

        Raises: Stuck after too many steps.
        """
        asyncio.events._set_running_loop(self)
        self._is_running = True
        ready, chance = self._ready, self._chance
        try:
            while True:
                while ready:
                    last = len(ready) - 1
                    chosen = int(chance() * (last + 1)) if last else 0
                    handle = ready[chosen]
                    ready[chosen] = ready[last]
                    ready.pop()
                    owner = handle.context.get(OWNER)
                    if not handle.is_cancelled and (owner is None or not owner.is_dead):
                        try:
                            handle.context.run(handle.callback, *handle.args)
                        except SystemExit:  # of `history.limited`, which has said why; of nobody else
                            self.failures.append(Stuck("SystemExit"))
                            break
                        except BaseException as error:  # noqa: BLE001 - whatever it is, the history has failed
                            self.failures.append(error)
                    self.steps += 1
                if self.failures:
                    raise self.failures[0]
                if self.steps > _MOST_STEPS:
                    raise Stuck(f"{self.steps} steps in {self._now:.0f} virtual seconds")
                if is_over():
                    return True
                if not self._leap(limit):
                    return False
        finally:
            self._is_running = False
            asyncio.events._set_running_loop(None)

    def dispose(self) -> None:
        """End what still waits, without letting it do anything more."""
        asyncio.events._set_running_loop(self)
        try:
            for task in self._tasks:
                if task.done():
                    continue
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine = task.get_coro()
                if coroutine is not None:
                    with contextlib.suppress(RuntimeError):  # from one that would wait for its own end
                        coroutine.close()
        finally:
            asyncio.events._set_running_loop(None)

    def _leap(self, limit: float) -> bool:
        """Go to the next time at which something happens; return whether that is before *limit*."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        at = timers[0][0] if timers else limit
        deadline = None if self.calendar is None else self.calendar.next_deadline()
        if deadline is not None and deadline < at:
            at = deadline
        if at >= limit:
            self._now = max(self._now, limit)
            return False
        self._now = max(self._now, at)
        if deadline is not None and deadline <= self._now and self.calendar is not None:
            self.calendar.advance()
        while timers and timers[0][0] <= self._now:
            handle = heapq.heappop(timers)[2]
            if not handle.is_cancelled:
                self._ready.append(handle)
        return True

    # What asyncio's futures, tasks and timeouts use

    def call_soon(  # type: ignore[override] # the generic signature of typeshed
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Make *callback* ready."""
        handle = Handle(callback, args, context, self._now)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override] # likewise
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Make *callback* ready after *delay* seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override] # likewise
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Make *callback* ready at a time."""
        handle = Handle(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override] # likewise
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Return a task of this loop."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override] # likewise
        """Run *func* at once: there is no other thread."""
        assert executor is None
        future = self.create_future()
        future.set_result(func(*args))
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an exception that nobody has awaited: it is a failure of the history."""
        error = context.get("exception")
        if error is not None:
            self.failures.append(error)

    def get_debug(self) -> bool:
        """Return that this loop does not debug."""
        return False

    def is_running(self) -> bool:
        """Return whether it runs."""
        return self._is_running

    def is_closed(self) -> bool:
        """Return that it is never closed."""
        return False
