# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""A receiver that receives from the namespace that a watch names."""

from typing import Any

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver, ServiceBusSession
from azure.servicebus.exceptions import MessageLockLostError

from busway_clients._sync.endpoints.link import LOGGER, FollowingClient, Link
from busway_clients.senders.error_kinds import describe

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

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """
        Return messages like a ServiceBusReceiver; an empty list while messages from before a change are unsettled.

        Raises what the SDK raises, unless the watch names another namespace by then.
        """
        end = self._monotonic() + (WAIT_SECONDS if max_wait_time is None else max_wait_time)
        with self._turn:
            return self._receive(max_message_count, end)

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Complete *message* where it came from; raises MessageLockLostError if that link is closed."""
        self._settle(message, "complete_message")

    def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Abandon *message* where it came from; raises MessageLockLostError if that link is closed."""
        self._settle(message, "abandon_message")

    def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """
        Defer *message* where it came from; raises MessageLockLostError if that link is closed.

        Receive it with a client of that namespace: elsewhere its sequence number belongs to another message.
        """
        self._settle(message, "defer_message")

    def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Dead-letter *message* where it came from; raises MessageLockLostError if that link is closed."""
        self._settle(message, "dead_letter_message", reason, error_description)

    def renew_message_lock(self, message: ServiceBusReceivedMessage, **options: Any) -> Any:  # noqa: ANN401 - the SDK's
        """Renew the lock of *message*; raises MessageLockLostError if its link is closed."""
        link = self._origin(message)
        return self._call(link, "renew_message_lock", message, seconds=self._open_seconds, **options)

    def release(self) -> None:
        """Close the link; the next `receive_messages` opens another: with NEXT_AVAILABLE_SESSION, another session."""
        self.close()

    def _origin(self, message: ServiceBusReceivedMessage) -> Link:
        """Return the link that a message came from; raises MessageLockLostError if it is closed."""
        link = self._link
        if link is None or message not in link.handed_out:
            raise MessageLockLostError(message=LINK_CLOSED)
        return link

    def _settle(self, message: ServiceBusReceivedMessage, method: str, *arguments: str | None) -> None:
        link = self._origin(message)
        try:
            self._call(link, method, message, *arguments, seconds=self._open_seconds)
        except Exception:
            link.handed_out.note_failure(message)
            raise
        else:
            link.handed_out.note_settled(message)
        finally:
            self._settled.set()

    def _receive(self, max_message_count: int | None, end: float) -> list[ServiceBusReceivedMessage]:
        link = self._follow(end=end)
        while link is not None:
            seconds = min(max(end - self._monotonic(), 0.01), CHECK_SECONDS)
            try:
                messages: list[ServiceBusReceivedMessage] = self._call(
                    link, "receive_messages", max_message_count, seconds, seconds=seconds + self._open_seconds
                )
            except Exception as error:  # noqa: BLE001 - raised again unless another namespace may help
                failed, link = link, self._follow_after(error, link.endpoint, end=end)
                LOGGER.warning("%s: receiving failed: %s", failed.endpoint, describe(error))
                continue
            if messages or self._monotonic() >= end:
                link.handed_out.add(messages)
                return messages
            link = self._follow(end=end)
        return []
