"""A consumer for asyncio that processes each message once across regions, with a task for each session."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Self

from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient

from busway_clients.aio.sessions.journal import Journal
from busway_clients.sessions.consuming import LOCK_RENEWAL_SECONDS, Consuming, Lane
from busway_clients.sessions.effects import Delivery
from busway_clients.sessions.errors import JournalError
from busway_clients.sessions.rows import AsyncRowStore
from busway_clients.sessions.session_work import Ending
from busway_clients.sessions.settings import Settings
from busway_clients.sessions.source import Source
from busway_clients.steps import run_async


class JournaledConsumer:
    """
    Gives each message of a queue or subscription to *apply*, once across all sites that share the journal.

    Like `busway_clients.sessions.JournaledConsumer`, with *lanes* tasks instead of threads, all in the event loop that
    calls `start`. An *apply* that blocks the event loop also blocks the renewal of its own lease.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        source: Source,
        store: AsyncRowStore,
        apply: Callable[[Delivery], Awaitable[None]],
        *,
        site: str,
        settings: Settings | None = None,
        lanes: int = 4,
    ) -> None:
        self._stopping = asyncio.Event()
        self._consuming = Consuming(
            client,
            source,
            store,
            apply,
            site=site,
            settings=settings,
            is_stopping=self._stopping.is_set,
            wait=self._wait,
        )
        self.settings = self._consuming.settings
        self.journal = Journal(store, self.settings)
        self._lanes = lanes
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        try:
            await self.join()
        except JournalError:
            if kind is None:
                raise

    async def start(self) -> None:
        """Open the journal and start; raises JournalMismatch, JournalUnavailable and JournalRefused."""
        await self.journal.open()
        self._stopping.clear()
        self._tasks = [asyncio.create_task(self._lane()) for _ in range(self._lanes)]

    def stop(self) -> None:
        """Start no further message; those in progress are finished and settled."""
        self._stopping.set()

    async def join(self) -> None:
        """Wait until all lanes have stopped; raises the error that stopped them, if any."""
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def run(self) -> None:
        """
        Process messages until `stop` is called.

        Raises what `start` raises, and JournalRefused later too. While the store is unavailable later, it waits.
        """
        await self.start()
        await self.join()

    async def _lane(self) -> None:
        try:
            await run_async(self._consuming.work(self._use_receiver))
        finally:
            # When one lane ends, all end.
            self._stopping.set()

    async def _use_receiver(self) -> Ending:
        async with contextlib.AsyncExitStack() as stack:
            renewer = AutoLockRenewer(max_lock_renewal_duration=LOCK_RENEWAL_SECONDS)
            stack.push_async_callback(renewer.close)
            receiver = await stack.enter_async_context(self._consuming.receiver())
            lane = Lane(self._consuming, receiver, renewer, asyncio.Lock())
            await stack.enter_async_context(_renewing(lane))
            return await run_async(lane.steps())

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


@contextlib.asynccontextmanager
async def _renewing(lane: Lane) -> AsyncIterator[None]:
    """Renew the lease of a lane in a task."""

    async def renew() -> None:
        while True:
            await asyncio.sleep(lane.check_seconds)
            await run_async(lane.renew_lease_if_due())

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
