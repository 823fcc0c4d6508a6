"""
Releases held batches when the process is asked to stop.

The Functions worker does not tell an app that it stops, and on Azure it gets no signal either: it is killed after the
host's grace period, and the locks of its batches expire (docs/decisions/0004). The local host does the same. A process
that drains on SIGTERM would otherwise wait as long as the task may hold a batch.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType

from shared.line.shutdown import Shutdown

type Handler = Callable[[int, FrameType | None], object]


def drain_on_signals(shutdown: Shutdown) -> None:
    """Request *shutdown* at each signal that this process already handles, before the existing handler runs."""
    if threading.current_thread() is not threading.main_thread():
        return  # signal handlers can be set in the main thread only
    for number in (signal.SIGTERM, signal.SIGINT):
        previous = signal.getsignal(number)
        if not callable(previous):
            continue  # the signal kills the process, so there is nothing to drain

        signal.signal(number, _before(previous, shutdown))


def _before(previous: Handler, shutdown: Shutdown) -> Handler:
    def request(number: int, frame: FrameType | None) -> None:
        shutdown.request()
        previous(number, frame)

    return request
