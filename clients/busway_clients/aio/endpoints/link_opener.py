"""Opens links in tasks, so that a caller with a working link need not wait for the next one."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import Link
from busway_clients.endpoints.link_opener import BESIDE_SECONDS, StillOpening

Opened = TypeVar("Opened")


async def open_link(
    connect: Callable[[Endpoint], AbstractAsyncContextManager[Any]],
    open_client: Callable[[Any], AbstractAsyncContextManager[Any]],
    endpoint: Endpoint,
) -> Link:
    """Open the SDK's client of *endpoint*, and a sender or receiver of it."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(endpoint))
        sdk = await stack.enter_async_context(open_client(client))
        return Link(endpoint, sdk, stack.pop_all().aclose)


async def close_link(link: Link) -> None:
    """Close a link and its client."""
    await link.close()


class LinkOpener(Generic[Opened]):
    """The links that one client opens, one call at a time."""

    def __init__(
        self,
        open_link: Callable[[Endpoint], Coroutine[Any, Any, Opened]],
        close: Callable[[Opened], Awaitable[None]],
        open_seconds: float,
        beside_seconds: float = BESIDE_SECONDS,
    ) -> None:
        """Open with *open_link* within *open_seconds*; *close* is called for links that are no longer needed."""
        self._open_link = open_link
        self._close = close
        self._open_seconds = open_seconds
        self._beside_seconds = beside_seconds
        self._pending: dict[Endpoint, tuple[asyncio.Task[Opened], float]] = {}

    async def open(self, endpoint: Endpoint, *, beside: bool) -> Opened:
        """
        Return a link to *endpoint* within open_seconds, or *beside_seconds* if the caller has another link.

        Raises what opening raises; StillOpening if it is not open yet *beside* the other link; TimeoutError after
        open_seconds.
        """
        if endpoint not in self._pending:
            self._pending[endpoint] = (asyncio.create_task(self._open_link(endpoint)), time.monotonic())
        task, began = self._pending[endpoint]
        seconds = min(self._beside_seconds, self._open_seconds) if beside else self._open_seconds
        await asyncio.wait({task}, timeout=max(began + seconds - time.monotonic(), 0.0))
        if task.done():
            del self._pending[endpoint]
            return task.result()
        if beside and time.monotonic() < began + self._open_seconds:
            raise StillOpening
        await self._abandon(endpoint)
        raise TimeoutError(f"no link could be opened within {self._open_seconds:g} s")

    async def abandon(self) -> None:
        """Abandon the links that are still opening."""
        for endpoint in [*self._pending]:
            await self._abandon(endpoint)

    async def _abandon(self, endpoint: Endpoint) -> None:
        task, _ = self._pending.pop(endpoint)
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await self._close(outcome)
