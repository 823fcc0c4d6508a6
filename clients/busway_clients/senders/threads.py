"""
A thread for each sender of the SDK, so that no send waits longer than it was told to.

The synchronous SDK has no bound while it opens a connection: a peer that accepts it and says nothing holds the caller
for ever. Whoever waits here stops waiting, and sends to that namespace fail at once until the SDK has come back.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Overdue

from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients.senders.outcome import Delivery

# What the SDK takes beyond the timeout that it is given, at most.
_GRACE_SECONDS = 1.5
_CLOSE_SECONDS = 1.0

_Task = tuple["Future[Delivery]", Callable[[], Delivery]]


class SenderThread:
    """The one thread that uses a sender of the SDK; sends of several callers follow each other."""

    def __init__(self, name: str) -> None:
        """Name the namespace; the thread starts with the first send."""
        self._name = name
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._overdue: Future[Delivery] | None = None
        self._turn = threading.Lock()
        self._is_open = False

    def run(self, deliver: Callable[[], Delivery], ids: Sequence[str], timeout: float | None) -> Delivery:
        """
        Deliver and return what became of it, at once and in the caller's thread where the link is open.

        Sending over an open link ends with the SDK's timeout, and a thread between would cost more than the rest.
        """
        if self._is_open and self._turn.acquire(timeout=-1 if timeout is None else timeout):
            try:
                return self._noted(deliver())
            finally:
                self._turn.release()
        return self.end(self.begin(deliver), ids, timeout)

    def begin(self, deliver: Callable[[], Delivery]) -> "Future[Delivery]":
        """Have the thread deliver, after all that was begun before."""
        with self._starting:
            if self._thread is None:
                # A daemon, since one that the SDK holds must not hold the end of the process.
                self._thread = threading.Thread(target=self._work, name=f"send to {self._name}", daemon=True)
                self._thread.start()
        pending: Future[Delivery] = Future()
        self._tasks.put((pending, deliver))
        return pending

    def end(self, pending: "Future[Delivery]", ids: Sequence[str], timeout: float | None) -> Delivery:
        """Wait for what was begun, and return it; after the timeout, that nothing is known of it. Units: seconds."""
        held_up = self._overdue is not None and not self._overdue.done()
        try:
            return pending.result(0 if held_up else None if timeout is None else timeout + _GRACE_SECONDS)
        except Overdue:
            if pending.cancel():
                text = "an earlier send has not come back from the SDK; this one was not begun"
            else:
                self._overdue, self._is_open = pending, False
                text = f"the SDK has not come back within {timeout} s"
            return Delivery((), tuple(ids), OperationTimeoutError(message=f"{self._name}: {text}"))

    def close(self) -> None:
        """End the thread once it has done what was begun."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(_CLOSE_SECONDS)
            self._thread = None

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            pending, deliver = task
            if not pending.set_running_or_notify_cancel():
                continue
            try:
                with self._turn:
                    delivery = self._noted(deliver())
                pending.set_result(delivery)
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
                pending.set_exception(error)

    def _noted(self, delivery: Delivery) -> Delivery:
        # After an error the SDK may have closed the link, and opens it anew with the next send.
        self._is_open = delivery.error is None
        return delivery
