# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""A sender that sends to the namespace that a watch names."""

import uuid
from collections.abc import Iterable

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

from busway_clients._sync.endpoints.link import LOGGER, FollowingClient, Link
from busway_clients._sync.sender_link import GRACE_SECONDS
from busway_clients.senders.delivery import TIMEOUT
from busway_clients.senders.error_kinds import describe

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

    def send_messages(self, message: Sendable, *, timeout: float | None = None) -> None:
        """
        Send like a ServiceBusSender; a message without an id gets one.

        Raises what the SDK raises. The message may still have been accepted, even by both namespaces; consumers can
        recognize duplicates by the message id. Units: timeout in seconds, for each of the two sends; without one, 60.
        """
        with self._turn:
            self._send(_with_ids(message), timeout)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Return an empty batch like a ServiceBusSender; by default the largest that the current namespace allows."""
        with self._turn:
            link = self._current_link()
            size, seconds = max_size_in_bytes, self._open_seconds
            batch: ServiceBusMessageBatch = self._call(link, "create_message_batch", size, seconds=seconds)
            return batch

    def _send(self, message: Sendable, timeout: float | None) -> None:
        """Send on the current link; if its namespace is unavailable, retry on another that the watch names."""
        link = self._current_link()
        try:
            self._send_on(link, message, timeout)
        except Exception as error:  # noqa: BLE001 - raised again unless another namespace may help
            other = self._follow_after(error, link.endpoint)
            assert other is not None  # noqa: S101 - as below
            LOGGER.warning("%s: a send failed and is retried at %s: %s", link.endpoint, other.endpoint, describe(error))
            self._send_on(other, message, timeout)

    def _send_on(self, link: Link, message: Sendable, timeout: float | None) -> None:
        seconds = (TIMEOUT if timeout is None else timeout) + GRACE_SECONDS
        self._call(link, "send_messages", message, seconds=seconds, timeout=timeout)

    def _current_link(self) -> Link:
        link = self._follow(beside=True)
        assert link is not None  # noqa: S101 - a sender has nothing to settle before it moves
        return link


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
