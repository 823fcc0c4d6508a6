"""A sender for asyncio that sends to the namespace which a watch names."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from busway_clients.endpoints.aio.openings import Openings
from busway_clients.endpoints.aio.watch import Watched
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import OPEN_SECONDS, RETRY_SECONDS, Sendable, identified
from busway_clients.endpoints.moorings import Moorings, Step
from busway_clients.endpoints.openings import StillOpening
from busway_clients.endpoints.watch import LOGGER
from busway_clients.senders.meaning import is_unavailable, told


@dataclass(frozen=True)
class _Link:
    endpoint: Endpoint
    sender: ServiceBusSender
    ends: contextlib.AsyncExitStack


class FollowingSender:
    """
    A ServiceBusSender that moves when the watch names another namespace; ends with its context.

    Sends are made one after the other, whatever task they come from, so that none is on its way when it moves. They go
    on where it is while the new link opens, which they wait for a second once. One that fails because the namespace
    seems to be away consults the watch at once, and is made again if there is another.
    """

    def __init__(
        self,
        watch: Watched,
        connect: Callable[[Endpoint], ServiceBusClient],
        open_sender: Callable[[ServiceBusClient], ServiceBusSender],
        *,
        open_seconds: float = OPEN_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Follow *watch*, with a client of each namespace from *connect* and a sender of it from *open_sender*.

        An endpoint that cannot be opened within *open_seconds*, or that *connect* does not know, is logged and left
        alone for *retry_seconds*; the sender stays where it is.
        """
        self._watch = watch
        self._connect = connect
        self._open_sender = open_sender
        self._openings = Openings(self._opened, _close, open_seconds)
        self._monotonic = monotonic
        self._moorings = Moorings(0.0, retry_seconds)
        self._lock = asyncio.Lock()
        self._link: _Link | None = None

    @property
    def endpoint(self) -> Endpoint | None:
        """Where it sends to, None before the first message."""
        return self._moorings.present

    async def send_messages(self, message: Sendable, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the SDK has it
        """
        Send as a ServiceBusSender does; a message without an id gets one.

        Raises what the SDK raises. A message may have been accepted all the same, and by two namespaces: by its id it
        can be known there. *timeout* is for each of the two sends.
        """
        message = identified(message)
        async with self._lock:
            link = await self._followed(await self._watch.endpoints())
            try:
                await link.sender.send_messages(message, timeout=timeout)
            except Exception as error:
                if not is_unavailable(error):
                    raise
                other = await self._followed(await self._watch.consult(), beside=False)
                if other is link:
                    raise
                LOGGER.warning("A send to %s failed, it is made to %s: %s", link.endpoint, other.endpoint, told(error))
                await other.sender.send_messages(message, timeout=timeout)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Return an empty batch as a ServiceBusSender does; without a size, the largest of the present namespace."""
        async with self._lock:
            link = await self._followed(await self._watch.endpoints())
            return await link.sender.create_message_batch(max_size_in_bytes)

    async def close(self) -> None:
        """Wait for a send that is on its way, and close."""
        async with self._lock:
            link, self._link, self._moorings.present = self._link, None, None
            await self._openings.leave()
            if link is not None:
                await link.ends.aclose()

    async def __aenter__(self) -> Self:
        """Open nothing yet: the first message does."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def _followed(self, wanted: tuple[Endpoint, ...], *, beside: bool = True) -> _Link:
        """
        Return the link to send on, at one of *wanted* if that can be; raises what hinders the first link.

        One that is there is returned while another opens *beside* it.
        """
        if self._link is not None and self._moorings.step(wanted, 0, self._monotonic()) is not Step.MOVE:
            await self._openings.leave()
            return self._link
        failure: Exception | None = None
        for endpoint in self._moorings.choices(wanted):
            try:
                link = await self._openings.link(endpoint, beside=beside and self._link is not None)
            except StillOpening:
                assert self._link is not None  # noqa: S101 - it opens beside this one
                return self._link
            except Exception as error:  # noqa: BLE001 - the present one is kept, whatever is wrong
                failure = error
                # Where there is nothing else, it is raised.
                if self._link is not None or endpoint != wanted[-1]:
                    LOGGER.error("%s cannot be opened: %s", endpoint, told(error))
                continue
            before, self._link = self._link, link
            self._moorings.moved(endpoint, wanted, self._monotonic())
            if before is not None:
                await before.ends.aclose()
            return link
        if self._link is None:
            assert failure is not None  # noqa: S101 - a watch names one endpoint at least
            raise failure
        self._moorings.refused(wanted, self._monotonic())
        return self._link

    async def _opened(self, endpoint: Endpoint) -> _Link:
        async with contextlib.AsyncExitStack() as ends:
            client = await ends.enter_async_context(self._connect(endpoint))
            sender = await ends.enter_async_context(self._open_sender(client))
            return _Link(endpoint, sender, ends.pop_all())


async def _close(link: _Link) -> None:
    await link.ends.aclose()
