"""The link of a following client, and the messages that the application received on it."""

import logging
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from busway_clients.endpoints.endpoint import Endpoint

LOGGER = logging.getLogger("busway_clients.endpoints")

Sendable = (
    ServiceBusMessage
    | AmqpAnnotatedMessage
    | ServiceBusMessageBatch
    | Iterable[ServiceBusMessage]
    | Iterable[AmqpAnnotatedMessage]
)
"""What the SDK's senders accept."""

LINK_CLOSED = "the message is already settled, or its link was closed and it will be delivered again"

OPEN_SECONDS = 20.0
DRAIN_SECONDS = 30.0
RETRY_SECONDS = 5.0
# How long to receive before checking whether the endpoint has changed.
CHECK_SECONDS = 5.0
# How long the SDK waits by default.
WAIT_SECONDS = 60.0


def with_ids(message: Sendable) -> Sendable:
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
    return [with_ids(each) for each in message]  # type: ignore[return-value]  # the kinds of messages do not change


class HandedOut:
    """The messages of one link that the application has received; safe to use from several threads."""

    def __init__(self) -> None:
        """Start without messages."""
        self._messages: dict[int, ServiceBusReceivedMessage] = {}
        self._settling_failed: set[int] = set()
        self._lock = threading.Lock()

    def __contains__(self, message: ServiceBusReceivedMessage) -> bool:
        return self._messages.get(id(message)) is message

    def add(self, messages: Iterable[ServiceBusReceivedMessage]) -> None:
        """Add the messages that must be settled, and forget earlier ones whose lock has expired."""
        now = datetime.now(UTC)
        with self._lock:
            held = self._messages.items()
            lost = [key for key, message in held if message.locked_until_utc and message.locked_until_utc < now]
            for key in lost:
                del self._messages[key]
                self._settling_failed.discard(key)
            self._messages |= {id(message): message for message in messages if message.lock_token is not None}

    def note_settled(self, message: ServiceBusReceivedMessage) -> None:
        """Forget a message that is settled."""
        with self._lock:
            self._messages.pop(id(message), None)
            self._settling_failed.discard(id(message))

    def note_failure(self, message: ServiceBusReceivedMessage) -> None:
        """Stop waiting for a message that could not be settled; the application may still try again."""
        self._settling_failed.add(id(message))

    def unsettled(self, session_until: datetime | None) -> int:
        """Return how many messages are unsettled and still locked; *session_until* is when their session lock ends."""
        now = datetime.now(UTC)
        with self._lock:
            until = {key: message.locked_until_utc or session_until for key, message in self._messages.items()}
        return sum(key not in self._settling_failed and (end is None or end > now) for key, end in until.items())


@dataclass(frozen=True)
class Link:
    """
    An SDK sender or receiver that is open at one endpoint.

    Shape:  close closes it and its client; in asyncio it is a coroutine function.
    """

    endpoint: Endpoint
    sdk: Any
    close: Callable[[], Any]
    handed_out: HandedOut = field(default_factory=HandedOut)

    @property
    def session(self) -> Any:  # noqa: ANN401 - the SDK's, which differs between the two kinds
        """The session of a receiver, None for an entity without sessions."""
        # The SDK's type hints say that there always is one.
        return getattr(self.sdk, "session", None)

    @property
    def unsettled(self) -> int:
        """The number of received messages that the application has not settled and whose locks have not expired."""
        session = self.session
        return self.handed_out.unsettled(None if session is None else session.locked_until_utc)


class StillOpening(Exception):
    """A link is not open yet, and its timeout has not passed."""
