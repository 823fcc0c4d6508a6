"""
A thread for each of the SDK's senders, so that no send waits longer than its timeout.

The synchronous SDK has no timeout while it opens a connection: a peer that accepts it and never answers blocks the
caller forever. Here the caller stops waiting, and sends to that namespace fail immediately until the SDK returns.
"""

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Overdue

from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients.senders.delivery import SdkSender, deliver, failed_delivery, is_lost, joined
from busway_clients.senders.error_kinds import is_unavailable
from busway_clients.senders.messages import OutgoingMessage
from busway_clients.senders.outcome import Delivery
from busway_clients.steps import run

# The SDK may exceed its timeout by this much.
_GRACE_SECONDS = 1.5
_CLOSE_SECONDS = 1.0

_Task = tuple["Future[Delivery]", Sequence[OutgoingMessage], float]


class SenderThread:
    """An SDK sender and the one thread that opens it; it makes one send at a time."""

    def __init__(self, name: str, sender: SdkSender) -> None:
        """Send to the namespace *name*; the thread starts with the first send."""
        self.sender = sender
        self.is_open = False
        self._name = name
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._overdue: Future[Delivery] | None = None
        self._lock = threading.Lock()

    def send(self, messages: Sequence[OutgoingMessage], until: float, failed: Exception | None = None) -> Delivery:
        """
        Send as a `Link` does; if the link is open, directly in the caller's thread.

        A send over an open link obeys the SDK's timeout, and passing it to a thread would cost more than the send.
        """
        if failed is not None:
            self.is_open = False
            delivery = failed_delivery(messages, failed)
        elif self.is_open and self._lock.acquire(timeout=min(max(0, until - time.monotonic()), threading.TIMEOUT_MAX)):
            try:
                delivery = self._deliver(messages, until)
            finally:
                self._lock.release()
        else:
            return self.end(self.begin(messages, until), messages, until)
        if not is_lost(delivery, until):
            return delivery
        rest = messages[len(delivery.accepted) :]
        return joined(delivery, self.end(self.begin(rest, until), rest, until))

    def begin(self, messages: Sequence[OutgoingMessage], until: float) -> "Future[Delivery]":
        """Queue a send for the thread."""
        with self._starting:
            if self._thread is None:
                # A daemon, since a thread that is blocked in the SDK must not keep the process from ending.
                self._thread = threading.Thread(target=self._work, name=f"send to {self._name}", daemon=True)
                self._thread.start()
        pending: Future[Delivery] = Future()
        self._tasks.put((pending, messages, until))
        return pending

    def end(self, pending: "Future[Delivery]", messages: Sequence[OutgoingMessage], until: float) -> Delivery:
        """Wait for a queued send and return its result; after its deadline, a result with a timeout error."""
        is_blocked = self._overdue is not None and not self._overdue.done()
        seconds = 0.0 if is_blocked else max(0.0, until - time.monotonic()) + _GRACE_SECONDS
        try:
            return pending.result(seconds if seconds < threading.TIMEOUT_MAX else None)
        except Overdue:
            if pending.cancel():
                text = "an earlier call of the SDK has not returned; this send was not started"
            else:
                self._overdue, self.is_open = pending, False
                text = "the SDK did not return in time"
            return failed_delivery(messages, OperationTimeoutError(message=f"{self._name}: {text}"))

    def close(self) -> None:
        """Stop the thread after the queued sends."""
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
                with self._lock:
                    was_open = self.is_open
                    delivery = self._deliver(messages, until)
                    if was_open and is_lost(delivery, until):
                        rest = messages[len(delivery.accepted) :]
                        delivery = joined(delivery, self._deliver(rest, until))
                pending.set_result(delivery)
            except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for the result
                pending.set_exception(error)

    def _deliver(self, messages: Sequence[OutgoingMessage], until: float) -> Delivery:
        delivery = run(deliver(self.sender, messages, until))
        # After an error the SDK may have closed the link; the next send reopens it.
        # The service may end the link after its answer: the next send finds that out, and opens another.
        self.is_open = delivery.error is None or not is_unavailable(delivery.error)
        return delivery
