"""
Listening for a trigger until a stop is requested, again after a failure.

A source that is missing or refuses the host does not stop the other triggers. It is retried as long as the host runs,
because on Azure too an entity may be created after the app has started.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from shared.errors import TargetRefused, TargetUnavailable

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
# In the error of a source that is disabled, which Azure's host asks 1 to 3 times a second (azure-sdk-for-net 27301).
_DISABLED = "entity-disabled"

type Sleep = Callable[[float], Coroutine[Any, Any, None]]
"""A way to let seconds pass, `asyncio.sleep` unless time is virtual."""


class Listener(Protocol):
    """A trigger of one function, or the server of all HTTP functions."""

    is_listening: asyncio.Event

    async def run(self) -> None:
        """Listen and invoke until `stop` is called and the running invocations are settled."""
        ...

    def stop(self) -> None:
        """Ask `run` to accept nothing more and to end."""
        ...


class Stopping:
    """
    The end of the host, in steps that wake waiting tasks.

    1. It is announced: no further retry of a function starts, but the listeners continue to receive.
    2. It is requested: the listeners stop.
    3. It is over. In a drain that comes later, when all invocations have ended.
    """

    def __init__(self, sleep: Sleep = asyncio.sleep) -> None:
        """Start without a request; wait with *sleep*."""
        self._announced = asyncio.Event()
        self._requested = asyncio.Event()
        self._over = asyncio.Event()
        self._over.set()
        self._sleep = sleep

    @property
    def is_announced(self) -> bool:
        """Return whether the host is going to stop."""
        return self._announced.is_set()

    def announce(self) -> None:
        """Announce the stop."""
        self._announced.set()

    def __bool__(self) -> bool:
        """Return whether to stop."""
        return self._requested.is_set()

    def request(self) -> None:
        """Request the stop."""
        self._announced.set()
        self._requested.set()

    async def requested(self) -> None:
        """Wait until the stop is requested."""
        await self._requested.wait()

    def drain(self) -> None:
        """Let the end wait for `finish`."""
        self._over.clear()

    def finish(self) -> None:
        """End the drain, if there is one."""
        self._over.set()

    async def over(self) -> None:
        """Wait until the stop is requested and no drain goes on."""
        await self._requested.wait()
        await self._over.wait()

    async def wait(self, seconds: float) -> None:
        """Wait for *seconds*, or until the stop is requested."""
        await self._wait(seconds, self._requested)

    async def wait_before_retry(self, seconds: float) -> None:
        """Wait for *seconds*, or until the stop is announced."""
        await self._wait(seconds, self._announced)

    async def _wait(self, seconds: float, event: asyncio.Event) -> None:
        waiting = [asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(event.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()


async def keep_listening(
    name: str, stopping: Stopping, listen: Callable[[Callable[[], None]], Awaitable[None]]
) -> None:
    """
    Call *listen* until the stop is requested, and again after a pause whenever it fails.

    Any error is retried: if a listener ended on an unexpected error, the host would claim to be ready. The pause grows
    with each failure, until *listen* calls its argument to report that the service has accepted it. A source that is
    disabled is asked twice a second, as Azure's host does; here only the first failure is logged.
    """
    pause = _FIRST_PAUSE
    was_disabled = False

    def let_in() -> None:
        nonlocal pause, was_disabled
        pause, was_disabled = _FIRST_PAUSE, False

    while not stopping:
        try:
            await listen(let_in)
        except Exception as error:  # noqa: BLE001 - see above; an unexpected error is logged with its traceback
            if stopping:
                return
            is_foreseen = isinstance(error, TargetUnavailable | TargetRefused)
            level = logging.WARNING if isinstance(error, TargetUnavailable) else logging.ERROR
            is_disabled = _DISABLED in str(error)
            if is_disabled:
                pause = _FIRST_PAUSE
                level = logging.DEBUG if was_disabled else level
            was_disabled = is_disabled
            _log.log(
                level, "%s: %s; listening again in %.1f s", name, error, pause, exc_info=None if is_foreseen else error
            )
            await stopping.wait(pause)
            pause = _FIRST_PAUSE if is_disabled else min(2 * pause, _LONGEST_PAUSE)
