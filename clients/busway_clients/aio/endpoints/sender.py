"""A sender that sends to the namespace that a watch names."""

import uuid
from collections.abc import Iterable
from functools import partial

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

from busway_clients.aio.endpoints.link import LOGGER, FollowingClient, Link, Stuck
from busway_clients.aio.sender_link import GRACE_SECONDS
from busway_clients.concurrency.tasks import answer_of
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.switching import Step
from busway_clients.senders.delivery import TIMEOUT
from busway_clients.senders.error_kinds import describe, is_unavailable

Sendable = (
    ServiceBusMessage
    | AmqpAnnotatedMessage
    | ServiceBusMessageBatch
    | Iterable[ServiceBusMessage]
    | Iterable[AmqpAnnotatedMessage]
)
"""What the SDK's senders accept."""


class FollowingSender(FollowingClient[ServiceBusSender]):
    """
    A ServiceBusSender that moves when the watch names another namespace; use it as a context manager.

    Concurrent sends run one after the other, so that none is running during a move. While a new link opens, a
    send waits one second for it and then uses the current link. If a send fails because the namespace seems
    unavailable, the sender reads the source immediately and retries if it names another namespace.
    """

    async def send_messages(self, message: Sendable, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the SDK's signature
        """
        Send like a ServiceBusSender; a message without an id gets one.

        Raises what the SDK raises. The message may still have been accepted, even by both namespaces; consumers can
        recognize duplicates by the message id. Units: timeout in seconds, for each of the two sends; without one, 60.
        """
        async with self._turn:
            await self._send(_with_ids(message), timeout)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Return an empty batch like a ServiceBusSender; by default the largest that the current namespace allows."""
        async with self._turn:
            link = await self._follow(await answer_of(self._watch.endpoints()))
            size, seconds = max_size_in_bytes, self._open_seconds
            batch: ServiceBusMessageBatch = await self._call(link, "create_message_batch", size, seconds=seconds)
            return batch

    async def _send(self, message: Sendable, timeout: float | None) -> None:  # noqa: ASYNC109 - passed to the SDK
        """Send on the current link; if its namespace is unavailable, retry on another that the watch names."""
        link = await self._follow(await answer_of(self._watch.endpoints()))
        try:
            await self._send_on(link, message, timeout)
        except Exception as error:
            if not is_unavailable(error):
                raise
            if isinstance(error, Stuck):
                await self._let_go()
            wanted = await answer_of(self._watch.consult())
            if wanted[0].namespace == link.endpoint.namespace:
                raise
            other = await self._follow(wanted, beside=False)
            if other is link:
                raise
            LOGGER.warning("%s: a send failed and is retried at %s: %s", link.endpoint, other.endpoint, describe(error))
            await self._send_on(other, message, timeout)

    async def _send_on(self, link: Link, message: Sendable, timeout: float | None) -> None:  # noqa: ASYNC109 - passed to the SDK
        seconds = (TIMEOUT if timeout is None else timeout) + GRACE_SECONDS
        await self._call(link, "send_messages", message, seconds=seconds, timeout=timeout)

    async def _follow(self, wanted: tuple[Endpoint, ...], *, beside: bool = True) -> Link:
        link = await self._first(wanted, partial(self._follow_known, beside=beside), is_unavailable)
        assert link is not None  # noqa: S101 - a sender has nothing to settle before it moves
        return link

    async def _follow_known(self, wanted: tuple[Endpoint, ...], *, beside: bool) -> Link:
        link = self._link
        if link is not None and self._switching.next_step(wanted, 0, self._monotonic()) is not Step.MOVE:
            await self._opener.abandon()
            return link
        return await self._move(wanted, beside=beside)


def _with_ids(message: Sendable) -> Sendable:
    """
    Return *message*, with a message id set where one is missing.

    A failed send may have been accepted, so a retry at another namespace must use the same id.
    """
    if isinstance(message, ServiceBusMessage):
        if message.message_id is None:
            message.message_id = str(uuid.uuid4())
        return message
    if isinstance(message, (AmqpAnnotatedMessage, ServiceBusMessageBatch)):
        return message
    return [_with_ids(each) for each in message]  # type: ignore[return-value]  # the kinds of messages do not change
