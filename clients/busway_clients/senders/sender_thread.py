"""
A thread for each sender of the SDK, so that no send waits longer than its timeout.

The synchronous SDK has no bound while it opens a connection: a peer that accepts it and says nothing holds the caller
for ever. Here the caller stops waiting, and sends to that namespace fail at once until the SDK has returned.
"""

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Overdue

from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients.senders.delivery import SdkSender, deliver, is_lost, joined, undelivered
from busway_clients.senders.messages import Identified
from busway_clients.senders.outcome import Delivery
from busway_clients.steps import run

# What the SDK takes beyond the timeout that it is given, at most.
_GRACE_SECONDS = 1.5
_CLOSE_SECONDS = 1.0

_Task = tuple["Future[Delivery]", Sequence[Identified], float]


class SenderThread:
    """A sender of the SDK and the one thread that opens it; sends of several callers follow each other."""

    def __init__(self, name: str, sender: SdkSender) -> None:
        """Name the namespace; the thread starts with the first send."""
        self.sender = sender
        self.is_open = False
        self._name = name
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._overdue: Future[Delivery] | None = None
        self._turn = threading.Lock()

    def send(self, messages: Sequence[Identified], until: float, failed: Exception | None = None) -> Delivery:
        """
        Send as a `Link` does, at once and in the caller's thread where the link is open.

        Sending over an open link ends with the SDK's timeout, and a thread between would cost more than the rest.
        """
        if failed is not None:
            self.is_open = False
            delivery = undelivered(messages, failed)
        elif self.is_open and self._turn.acquire(timeout=min(max(0, until - time.monotonic()), threading.TIMEOUT_MAX)):
            try:
                delivery = self._deliver(messages, until)
            finally:
                self._turn.release()
        else:
            return self.end(self.begin(messages, until), messages, until)
        if not is_lost(delivery, until):
            return delivery
        rest = messages[len(delivery.accepted) :]
        return joined(delivery, self.end(self.begin(rest, until), rest, until))

    def begin(self, messages: Sequence[Identified], until: float) -> "Future[Delivery]":
        """Have the thread send, after all that was begun before."""
        with self._starting:
            if self._thread is None:
                # A daemon, since one that the SDK holds must not hold the end of the process.
                self._thread = threading.Thread(target=self._work, name=f"send to {self._name}", daemon=True)
                self._thread.start()
        pending: Future[Delivery] = Future()
        self._tasks.put((pending, messages, until))
        return pending

    def end(self, pending: "Future[Delivery]", messages: Sequence[Identified], until: float) -> Delivery:
        """Wait for what was begun, and return it; when its time is over, that nothing is known of it."""
        held_up = self._overdue is not None and not self._overdue.done()
        seconds = 0.0 if held_up else max(0.0, until - time.monotonic()) + _GRACE_SECONDS
        try:
            return pending.result(seconds if seconds < threading.TIMEOUT_MAX else None)
        except Overdue:
            if pending.cancel():
                text = "an earlier send has not come back from the SDK; this one was not begun"
            else:
                self._overdue, self.is_open = pending, False
                text = "the SDK has not come back in time"
            return undelivered(messages, OperationTimeoutError(message=f"{self._name}: {text}"))

    def close(self) -> None:
        """End the thread once it has done what was begun."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(_CLOSE_SECONDS)
            self._thread = None

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            pending, messages, until = task
            if not pending.set_running_or_notify_cancel():
                continue
            try:
                with self._turn:
                    was_open = self.is_open
                    delivery = self._deliver(messages, until)
                    if was_open and is_lost(delivery, until):
                        rest = messages[len(delivery.accepted) :]
                        delivery = joined(delivery, self._deliver(rest, until))
                pending.set_result(delivery)
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
                pending.set_exception(error)

    def _deliver(self, messages: Sequence[Identified], until: float) -> Delivery:
        delivery = run(deliver(self.sender, messages, until))
        # After an error the SDK may have closed the link; the next send opens it again.
        self.is_open = delivery.error is None
        return delivery
