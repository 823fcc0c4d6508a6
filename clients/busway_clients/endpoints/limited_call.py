"""
Calls with a total time limit.

A name server, a share or a web server can keep a call waiting in ways that no socket timeout covers: one byte a second,
one address after the other, a file system that hangs. Here the call runs in a thread, and the caller stops waiting.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from busway_clients.concurrency.threads import SideTask

Result = TypeVar("Result")


class LimitedCall(Generic[Result]):
    """
    A call that callers wait for during a limited time; at most one runs, and further callers wait for the same one.

    A call that is still running after the limit is not stopped. Its thread does not keep the application from ending.
    """

    def __init__(self, act: Callable[[], Result], seconds: float, give_up: Callable[[], None] = lambda: None) -> None:
        """Call *act*, and *give_up* when it has not returned within *seconds*, to let it end soon."""
        self._act = act
        self._seconds = seconds
        self._give_up = give_up
        self._lock = threading.Lock()
        self._running: SideTask[Result] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a call has begun and not ended."""
        return self._running is not None and not self._running.is_done

    def start(self, is_needed: Callable[[], bool] = lambda: True) -> SideTask[Result] | None:
        """Return the running call, or begin one; None if none runs and none *is_needed*."""
        with self._lock:
            if not self.is_running:
                if not is_needed():
                    return None
                self._running = SideTask(self._act, "busway-endpoint-source")
            return self._running

    def result(self) -> Result:
        """Return what the call returns or raises; raises TimeoutError after the limit."""
        running = self.start()
        if running is not None and running.wait(self._seconds):
            return running.result()
        self._give_up()
        raise TimeoutError(f"no answer within {self._seconds:g} s")
