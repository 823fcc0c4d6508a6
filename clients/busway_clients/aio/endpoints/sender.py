"""An asynchronous sender that sends to the namespace that a watch names."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from busway_clients.aio.endpoints.link_opener import LinkOpener, close_link, open_link
from busway_clients.aio.endpoints.watch import Watched
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import OPEN_SECONDS, RETRY_SECONDS, Sendable
from busway_clients.endpoints.sending import FollowingSending
from busway_clients.steps import run_async


class FollowingSender:
    """
    A ServiceBusSender that moves when the watch names another namespace; use it as a context manager.

    Sends from all tasks run one after the other, so that none is running during a move. While a new link opens, a
    send waits one second for it and then uses the current link. If a send fails because the namespace seems
    unavailable, the sender reads the source immediately and retries if it names another namespace.
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
        Follow *watch*; *connect* returns a client of an endpoint, and *open_sender* a sender of that client.

        An endpoint that *connect* rejects, or that does not open within *open_seconds*, is logged and not retried for
        *retry_seconds*; the sender keeps its current link.
        """
        opener = LinkOpener(partial(open_link, connect, open_sender), close_link, open_seconds)
        self._sending = FollowingSending(watch, opener, retry_seconds, monotonic=monotonic, lock=asyncio.Lock())

    @property
    def endpoint(self) -> Endpoint | None:
        """The current endpoint, None before the first message."""
        return self._sending.switching.current

    async def send_messages(self, message: Sendable, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the SDK's signature
        """
        Send like a ServiceBusSender; a message without an id gets one.

        Raises what the SDK raises. The message may still have been accepted, even by both namespaces; consumers can
        recognize duplicates by the message id. Units: timeout in seconds, for each of the two sends.
        """
        await run_async(self._sending.send(message, timeout))

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Return an empty batch like a ServiceBusSender; by default the largest that the current namespace allows."""
        batch: ServiceBusMessageBatch = await run_async(self._sending.create_batch(max_size_in_bytes))
        return batch

    async def close(self) -> None:
        """Wait for the running send, then close."""
        await run_async(self._sending.close())

    async def __aenter__(self) -> Self:
        """Return the sender; its first message opens the link."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()
