"""
Calls of a user's function in a thread, so that it may wait and compute while other tasks run.

A call that takes too long is abandoned: an error is raised in its thread, which ends it unless it waits in C code, and
what it returns later is ignored. The calls after it get a new thread.
"""

import asyncio
import ctypes
import threading
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from shared.errors import MessageRejected, TargetRefused
from shared.time_limit import REASON

MOST_ABANDONED = 8


class OwnThread:
    """Calls of one function, never two at the same time unless one is abandoned."""

    def __init__(self, name: str, seconds: float) -> None:
        """Allow each call *seconds* by the clock."""
        self._name = name
        self._seconds = seconds
        self._abandoned: list[threading.Thread] = []
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def map[T, R](self, function: Callable[[T], R], items: Sequence[T]) -> list[R | Exception]:
        """
        Return for each item what *function* returns or raises, MessageRejected if it takes too long.

        Raises TargetRefused while so many abandoned calls still run that an operator must act.
        """
        results: list[R | Exception] = []
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while len(results) < len(items):
                self._check()
                results += await self._some(_Calls(function, items[len(results) :]))
        return results

    async def _some[T, R](self, calls: "_Calls[T, R]") -> list[R | Exception]:
        """Return the results of all calls, or of those up to the first that takes too long."""
        seen = -1
        thread = threading.Thread(target=calls.run, name=self._name, daemon=True)
        thread.start()
        while not calls.ended.is_set():
            try:
                await asyncio.wait_for(calls.ended.wait(), self._seconds)
            except TimeoutError:
                with calls.lock:
                    calls.is_abandoned = len(calls.results) == seen
                    seen = len(calls.results)
                if calls.is_abandoned:
                    self._abandon(thread)
                    problem = f"took more than {self._seconds:g} s (ten times limits.edit_time)"
                    return [*calls.results, MessageRejected(REASON, problem)]
        return calls.results

    def _abandon(self, thread: threading.Thread) -> None:
        self._abandoned.append(thread)
        if thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Abandoned))

    def _check(self) -> None:
        self._abandoned = [each for each in self._abandoned if each.is_alive()]
        if len(self._abandoned) >= MOST_ABANDONED:
            raise TargetRefused(
                f"{self._name}: {len(self._abandoned)} calls do not return; correct the function and restart the app"
            )


class _Abandoned(BaseException):
    """Raised in a call that takes too long; not an Exception, which the function may catch."""


class _Calls[T, R]:
    """Calls of a function with items, one after the other, until they are abandoned."""

    def __init__(self, function: Callable[[T], R], items: Sequence[T]) -> None:
        self._function = function
        self._items = items
        self._loop = asyncio.get_running_loop()
        self.results: list[R | Exception] = []
        self.ended = asyncio.Event()
        self.lock = threading.Lock()
        self.is_abandoned = False

    def run(self) -> None:
        """Make the calls, in a thread."""
        try:
            for item in self._items:
                result: R | Exception
                try:
                    result = self._function(item)
                except Exception as error:  # noqa: BLE001 - the caller decides
                    result = error
                with self.lock:
                    if self.is_abandoned:
                        return
                    self.results.append(result)
            self._loop.call_soon_threadsafe(self.ended.set)
        except _Abandoned:
            return
