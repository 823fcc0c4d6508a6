"""A limit for calls that wait forever when a service accepts a connection and is silent, as Microsoft's SDKs do."""

import queue
import threading
from collections.abc import Callable

from shared.errors import TargetUnavailable


def within[T](seconds: float, late: str, work: Callable[[], T]) -> T:
    """Return what *work* returns, or raise its error; after *seconds* raise TargetUnavailable with the text *late*."""
    ended: queue.SimpleQueue[tuple[T] | Exception] = queue.SimpleQueue()

    def run() -> None:
        try:
            ended.put((work(),))
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            ended.put(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        result = ended.get(timeout=seconds)
    except queue.Empty:
        raise TargetUnavailable(late) from None
    if isinstance(result, Exception):
        raise result
    return result[0]
