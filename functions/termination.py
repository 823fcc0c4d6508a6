"""
What the worker does at SIGTERM, which the platform sends before it kills the process.

Batches stop waiting and give back what they hold, through the host; then the measurements are exported, and the process
ends as it would have without a handler. The time until SIGKILL is not documented (docs/decisions/0091).
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from shared.line.shutdown import Shutdown

GIVE_BACK_SECONDS = 4.0
FLUSH_SECONDS = 3.0
_LOOK_SECONDS = 0.05

type Handler = Callable[[int, FrameType | None], object]


def end_at_signals(shutdown: Shutdown, flush: Callable[[float], None]) -> None:
    """At SIGTERM request *shutdown*, then *flush* with a timeout in seconds, then end; at SIGINT only request it."""
    if threading.current_thread() is not threading.main_thread():
        return  # signal handlers can be set in the main thread only
    for number in (signal.SIGTERM, signal.SIGINT):
        previous = signal.getsignal(number)
        if callable(previous):
            signal.signal(number, _before(previous, shutdown))
        elif number == signal.SIGTERM and previous is signal.SIG_DFL:
            signal.signal(number, _ending(shutdown, flush))


def _before(previous: Handler, shutdown: Shutdown) -> Handler:
    def request(number: int, frame: FrameType | None) -> None:
        shutdown.request()
        previous(number, frame)

    return request


def _ending(shutdown: Shutdown, flush: Callable[[float], None]) -> Handler:
    def request(number: int, _: FrameType | None) -> None:
        if not shutdown.is_requested:
            shutdown.request()
            # The event loop runs in this thread, and the batches need it to end.
            threading.Thread(target=end, args=(number,), name="termination", daemon=True).start()

    def end(number: int) -> None:
        limit = time.monotonic() + GIVE_BACK_SECONDS
        while shutdown.in_progress and time.monotonic() < limit:
            time.sleep(_LOOK_SECONDS)
        flush(FLUSH_SECONDS)
        os._exit(128 + number)  # what a shell reports of a process that a signal has ended

    return request
