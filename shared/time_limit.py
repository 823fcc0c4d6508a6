"""
A limit on the processor time that one message may take from the event loop.

Python cannot interrupt a call from another thread. So the kernel sends a signal after each hundredth of a second that
this process computes, and the signal's handler, which Python runs in the main thread between two steps of its own code
and within a search for a regular expression, raises MessageRejected out of the work. Work in other C code is not
interrupted: its callers limit what they give it.

Functions run in the main thread; in any other thread, and on Windows, nothing is limited. Time in which the process
waits, or other processes and threads compute, does not count, so that a busy machine rejects nothing.
"""

import _weakrefset
import asyncio
import signal
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Self, cast

from shared.errors import MessageRejected
from shared.message.message import Message

DEFAULT_SECONDS = 0.1
REASON = "EditTimeExceeded"

_TICK = 0.01
_LARGE = 256 * 1024
# A library in Rust, such as cbor2, drops an error that is raised while it checks a type: a later tick raises it.
_TYPE_CHECKS = {"<frozen abc>", "<frozen _collections_abc>"}
# Python drops an error that is raised while it deletes an object, and what was to be done then is not done.
_DELETIONS = {_weakrefset.__file__, weakref.__file__}


class TimeLimit:
    """The limit of one task, for the messages of a batch one after the other."""

    def __init__(self, seconds: float = DEFAULT_SECONDS) -> None:
        """Allow each message *seconds*, and as much again for each further 256 KiB of its body."""
        self.seconds = seconds
        self._allowed = self._most = max(1, round(seconds / _TICK))
        self._ticks = 0
        self._began = 0.0
        self._is_armed = False
        self._has_ticked = False

    async def each[R](self, work: Callable[[Message], R], messages: Sequence[Message]) -> list[R | MessageRejected]:
        """
        Return what *work* makes of each message, or its rejection; other tasks have their turn after a long one.

        Raises the first error that is no rejection.
        """
        results: list[R | Exception] = []
        pending = self.run(work, ((None, message) for message in messages), lambda _, result: results.append(result))
        if pending is not None:
            await pending
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, MessageRejected):
                raise result
        return cast("list[R | MessageRejected]", results)

    def run[K, R](
        self,
        work: Callable[[Message], R],
        messages: Iterable[tuple[K, Message]],
        done: Callable[[K, R | Exception], None],
    ) -> Awaitable[None] | None:
        """
        Do *work* with each message, and pass what it returns or raises to *done* with the message's key.

        Returns what to await if it has taken so long that other tasks must have their turn before the rest.
        """
        left = iter(messages)
        return self._later(work, left, done) if self._some(work, left, done) else None

    async def _later[K, R](
        self,
        work: Callable[[Message], R],
        left: Iterator[tuple[K, Message]],
        done: Callable[[K, R | Exception], None],
    ) -> None:
        has_more = True
        while has_more:
            await asyncio.sleep(0)
            has_more = self._some(work, left, done)

    def _some[K, R](
        self,
        work: Callable[[Message], R],
        left: Iterator[tuple[K, Message]],
        done: Callable[[K, R | Exception], None],
    ) -> bool:
        """Do some of the work; return whether there may be more."""
        with self:
            for key, message in left:
                size = len(message.sections.body)
                self._most = self._allowed if size <= _LARGE else self._allowed * -(-size // _LARGE)
                self._ticks = 0
                result: R | Exception
                try:
                    self._is_armed = True
                    result = work(message)
                    self._is_armed = False
                except Exception as error:  # noqa: BLE001 - the caller decides
                    self._is_armed = False
                    result = error
                done(key, result)
                if self._has_ticked:
                    return True
        return False

    def __enter__(self) -> Self:
        """Start the timer."""
        global _running  # noqa: PLW0603 - a process has one timer
        self._has_ticked = False
        if _running is None and _is_available():
            _running = self
            signal.setitimer(signal.ITIMER_PROF, _TICK, _TICK)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the timer."""
        global _running  # noqa: PLW0603 - likewise
        if _running is self:
            _running = None
            signal.setitimer(signal.ITIMER_PROF, 0)

    def tick(self, frame: FrameType | None) -> None:
        """Count a tick; raises MessageRejected beyond the limit, if the code of *frame* passes errors on."""
        self._has_ticked = True
        self._ticks += 1
        if self._ticks == 1:
            self._began = time.thread_time() - _TICK
        # Another thread may have computed in the meantime, such as the function of a user.
        is_own = time.thread_time() - self._began > self._most * _TICK
        if self._is_armed and self._ticks > self._most and is_own and not _drops_errors(frame):
            # If a library takes the error for one of its own and goes on, it is raised again after the same time.
            self._ticks = 0
            raise MessageRejected(
                REASON,
                f"took more than {self._most * _TICK:g} s of processor time (limits.edit_time is {self.seconds:g} s for"
                " each 256 KiB of a body)",
            )


_running: TimeLimit | None = None
_is_ready = False


def _is_available() -> bool:
    """Return whether signals reach the caller; installs their handler at the first call."""
    global _is_ready  # noqa: PLW0603 - a process has one handler
    if threading.current_thread() is not threading.main_thread():
        return False
    if not _is_ready and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, _tick)
        _is_ready = True
    return _is_ready


def _tick(_: int, frame: FrameType | None) -> None:
    if _running is not None:
        _running.tick(frame)


def _drops_errors(frame: FrameType | None) -> bool:
    """Return whether an error that is raised in *frame* does not reach the work's caller."""
    if frame is not None and frame.f_code.co_filename in _TYPE_CHECKS:
        return True
    while frame is not None and frame.f_code.co_filename != __file__:
        if frame.f_code.co_name == "__del__" or frame.f_code.co_filename in _DELETIONS:
            return True
        frame = frame.f_back
    return False
