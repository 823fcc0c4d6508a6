"""
Letting go of what is held when the process is told to end.

The Functions worker tells an app nothing of its end, and on Azure it is sent no signal either: it is killed once the
host's grace period is over, and the locks of a batch in hand run out (docs/decisions/0004). A process that does drain
on SIGTERM, as the local host does, would wait for a held batch for as long as the task holds one.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType

from shared.line.shutdown import Shutdown

type Handler = Callable[[int, FrameType | None], object]


def drain_on_signals(shutdown: Shutdown) -> None:
    """Request *shutdown* at a signal that this process handles already, before what it does about it."""
    if threading.current_thread() is not threading.main_thread():
        return  # handlers can be set there only
    for number in (signal.SIGTERM, signal.SIGINT):
        previous = signal.getsignal(number)
        if not callable(previous):
            continue  # the signal ends the process: there is nothing to drain

        signal.signal(number, _before(previous, shutdown))


def _before(previous: Handler, shutdown: Shutdown) -> Handler:
    def request(number: int, frame: FrameType | None) -> None:
        shutdown.request()
        previous(number, frame)

    return request
