"""A receiver that receives from the namespace that a watch names."""

from functools import partial
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSession
from azure.servicebus.exceptions import MessageLockLostError, SessionLockLostError

from busway_clients.aio.endpoints.link import LOGGER, FollowingClient, Link, Stuck
from busway_clients.concurrency.tasks import answer_of, is_set_within
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.switching import Step
from busway_clients.senders.error_kinds import describe, is_unavailable

LINK_CLOSED = "the message is already settled, or its link was closed and it will be delivered again"

# How long to receive before checking whether the endpoint has changed.
CHECK_SECONDS = 5.0
# How long the SDK waits by default.
WAIT_SECONDS = 60.0


class FollowingReceiver(FollowingClient[ServiceBusReceiver]):
    """
    A ServiceBusReceiver that moves when the watch names another namespace; use it as a context manager.

    Before a move it receives nothing more, and waits until the received messages are settled at their namespace.
    Messages may be settled anywhere; `receive_messages` is called once at a time.
    """

    @property
    def session(self) -> ServiceBusSession | None:
        """The session of the current link, None for an entity without sessions."""
        return None if self._link is None else self._link.session

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """
        Return messages like a ServiceBusReceiver; an empty list while messages from before a change are unsettled.

        Raises what the SDK raises, unless the watch names another namespace by then.
        """
        end = self._monotonic() + (WAIT_SECONDS if max_wait_time is None else max_wait_time)
        async with self._turn:
            return await self._receive(max_message_count, end)

    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Complete *message* where it came from; raises MessageLockLostError if that link is closed."""
        await self._settle(message, "complete_message")

    async def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Abandon *message* where it came from; raises MessageLockLostError if that link is closed."""
        await self._settle(message, "abandon_message")

    async def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """
        Defer *message* where it came from; raises MessageLockLostError if that link is closed.

        Receive it with a client of that namespace: elsewhere its sequence number belongs to another message.
        """
        await self._settle(message, "defer_message")

    async def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Dead-letter *message* where it came from; raises MessageLockLostError if that link is closed."""
        await self._settle(message, "dead_letter_message", reason, error_description)

    async def renew_message_lock(self, message: ServiceBusReceivedMessage, **options: Any) -> Any:  # noqa: ANN401 - the SDK's
        """Renew the lock of *message*; raises MessageLockLostError if its link is closed."""
        link = self._origin(message)
        return await self._call(link, "renew_message_lock", message, seconds=self._open_seconds, **options)

    async def release(self) -> None:
        """Close the link; the next `receive_messages` opens another: with NEXT_AVAILABLE_SESSION, another session."""
        await self.close()

    def _origin(self, message: ServiceBusReceivedMessage) -> Link:
        """Return the link that a message came from; raises MessageLockLostError if it is closed."""
        link = self._link
        if link is None or message not in link.handed_out:
            raise MessageLockLostError(message=LINK_CLOSED)
        return link

    async def _settle(self, message: ServiceBusReceivedMessage, method: str, *arguments: str | None) -> None:
        link = self._origin(message)
        try:
            await self._call(link, method, message, *arguments, seconds=self._open_seconds)
        except Exception:
            link.handed_out.note_failure(message)
            raise
        else:
            link.handed_out.note_settled(message)
        finally:
            self._settled.set()

    async def _receive(self, max_message_count: int | None, end: float) -> list[ServiceBusReceivedMessage]:
        wanted = await answer_of(self._watch.endpoints())
        while True:
            link = await self._follow(wanted, end)
            if link is None:
                return []
            seconds = min(max(end - self._monotonic(), 0.01), CHECK_SECONDS)
            try:
                messages: list[ServiceBusReceivedMessage] = await self._call(
                    link, "receive_messages", max_message_count, seconds, seconds=seconds + self._open_seconds
                )
            except Exception as error:
                if not _may_be_an_outage(error):
                    raise
                if isinstance(error, Stuck):
                    await self._let_go()
                wanted = await answer_of(self._watch.consult())
                if wanted[0].namespace == link.endpoint.namespace:
                    raise
                LOGGER.warning("%s: receiving failed: %s", link.endpoint, describe(error))
                if await self._follow(wanted, end) is link:
                    raise
                continue
            if messages or self._monotonic() >= end:
                link.handed_out.add(messages)
                return messages
            wanted = await answer_of(self._watch.endpoints())

    async def _follow(self, wanted: tuple[Endpoint, ...], end: float) -> Link | None:
        """Return the link to receive on, None if messages are still unsettled at *end*."""
        return await self._first(wanted, partial(self._follow_known, end=end), _may_be_an_outage)

    async def _follow_known(self, wanted: tuple[Endpoint, ...], end: float) -> Link | None:
        step = await self._wait_for_settlement(wanted, end)
        if step is Step.MOVE:
            return await self._move(wanted)
        return self._link if step is Step.STAY else None

    async def _wait_for_settlement(self, wanted: tuple[Endpoint, ...], end: float) -> Step:
        """Return whether to move; DRAIN if *end* comes before all messages are settled."""
        while (link := self._link) is not None:
            self._settled.clear()
            step = self._switching.next_step(wanted, link.unsettled, self._monotonic())
            seconds = end - self._monotonic()
            if step is not Step.DRAIN or seconds <= 0:
                return step
            left = self._switching.drain_seconds_left(self._monotonic())
            await is_set_within(self._settled, min(seconds, left))
        return Step.MOVE


def _may_be_an_outage(error: Exception) -> bool:
    # The SDK raises the second without a word to the namespace, once the lock of its session has ended.
    return is_unavailable(error) or isinstance(error, SessionLockLostError)
