"""An asynchronous receiver that receives from the namespace that a watch names."""

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSession

from busway_clients.aio.endpoints.link_opener import open_link
from busway_clients.aio.endpoints.watch import Watched
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import DRAIN_SECONDS, OPEN_SECONDS, RETRY_SECONDS, Link
from busway_clients.endpoints.receiving import FollowingReceiving
from busway_clients.steps import run_async


class FollowingReceiver:
    """
    A ServiceBusReceiver that moves when the watch names another namespace; use it as a context manager.

    Before a move it receives nothing more, and waits until the received messages are settled at their namespace.
    Messages may be settled from any task; only one task may call `receive_messages` at a time.
    """

    def __init__(
        self,
        watch: Watched,
        connect: Callable[[Endpoint], ServiceBusClient],
        open_receiver: Callable[[ServiceBusClient], ServiceBusReceiver],
        *,
        drain_seconds: float = DRAIN_SECONDS,
        open_seconds: float = OPEN_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Follow *watch*; *connect* returns a client of an endpoint, and *open_receiver* a receiver of that client.

        A message that is not settled within *drain_seconds* of the change, or before its lock ends, is delivered again
        by its namespace. An endpoint that does not open within *open_seconds* is not retried for *retry_seconds*; the
        receiver keeps its current link.
        """

        async def open_in_time(endpoint: Endpoint) -> Link:
            # In the caller's task, so that cancelling it closes a link that may have locked a session.
            async with asyncio.timeout(open_seconds):
                return await open_link(connect, open_receiver, endpoint)

        self._receiving = FollowingReceiving(
            watch,
            open_in_time,
            drain_seconds,
            retry_seconds,
            monotonic=monotonic,
            lock=asyncio.Lock(),
            settled=asyncio.Condition(),
        )

    @property
    def endpoint(self) -> Endpoint | None:
        """The current endpoint, None before the first call."""
        return self._receiving.switching.current

    @property
    def session(self) -> ServiceBusSession | None:
        """The session of the current link, None for an entity without sessions."""
        return None if self._receiving.link is None else self._receiving.link.session

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """
        Return messages like a ServiceBusReceiver; an empty list while messages from before a change are unsettled.

        Raises what the SDK raises, unless the watch names another namespace by then.
        """
        steps = self._receiving.receive(max_message_count, max_wait_time)
        return await run_async(steps)

    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Complete *message* where it came from; raises MessageLockLostError if that link is closed."""
        await run_async(self._receiving.settle(message, lambda receiver: receiver.complete_message(message)))

    async def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Abandon *message* where it came from; raises MessageLockLostError if that link is closed."""
        await run_async(self._receiving.settle(message, lambda receiver: receiver.abandon_message(message)))

    async def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """
        Defer *message* where it came from; raises MessageLockLostError if that link is closed.

        Receive it with a client of that namespace: elsewhere its sequence number belongs to another message.
        """
        await run_async(self._receiving.settle(message, lambda receiver: receiver.defer_message(message)))

    async def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Dead-letter *message* where it came from; raises MessageLockLostError if that link is closed."""
        await run_async(
            self._receiving.settle(
                message, lambda receiver: receiver.dead_letter_message(message, reason, error_description)
            )
        )

    async def renew_message_lock(self, message: ServiceBusReceivedMessage, **options: Any) -> Any:  # noqa: ANN401 - the SDK's
        """Renew the lock of *message*; raises MessageLockLostError if its link is closed."""
        return await run_async(self._receiving.renew_lock(message, options))

    async def release(self) -> None:
        """Close the link; the next `receive_messages` opens another: with NEXT_AVAILABLE_SESSION, another session."""
        await run_async(self._receiving.release())

    async def close(self) -> None:
        """Close; messages that are not settled are delivered again."""
        await self.release()

    async def __aenter__(self) -> Self:
        """Return the receiver; its first call opens the link."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()
