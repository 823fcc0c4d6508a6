"""What the followers share, synchronous or not: what is sent, and what has been handed out."""

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

Sendable = (
    ServiceBusMessage
    | AmqpAnnotatedMessage
    | ServiceBusMessageBatch
    | Iterable[ServiceBusMessage]
    | Iterable[AmqpAnnotatedMessage]
)
"""What the SDK's senders send."""

LEFT_BEHIND = "the message's link was left behind, or it is settled already; it is delivered again if it is not"

OPEN_SECONDS = 20.0
DRAIN_SECONDS = 30.0
RETRY_SECONDS = 5.0
# How long to receive before looking whether the endpoint is another.
LOOK_SECONDS = 5.0
# What the SDK waits without an argument.
WAIT_SECONDS = 60.0


def identified(message: Sendable) -> Sendable:
    """
    Return *message* with a message id on each that has none.

    A send that fails may have been carried out, and the second one, at another namespace, must be known for the same.
    """
    if isinstance(message, ServiceBusMessage):
        if message.message_id is None:
            message.message_id = str(uuid.uuid4())
        return message
    if isinstance(message, (AmqpAnnotatedMessage, ServiceBusMessageBatch)):
        return message
    return [identified(each) for each in message]  # type: ignore[return-value]  # what it yields stays what it is


class HandedOut:
    """The messages of one link that the application has."""

    def __init__(self) -> None:
        """Begin with none."""
        self._messages: dict[int, ServiceBusReceivedMessage] = {}
        self._given_up: set[int] = set()

    def __contains__(self, message: ServiceBusReceivedMessage) -> bool:
        return self._messages.get(id(message)) is message

    def add(self, messages: Iterable[ServiceBusReceivedMessage]) -> None:
        """Note those of *messages* that are to be settled as handed out; forget those whose lock is lost."""
        now = datetime.now(UTC)
        lost = [key for key, each in self._messages.items() if each.locked_until_utc and each.locked_until_utc < now]
        for key in lost:
            del self._messages[key]
            self._given_up.discard(key)
        self._messages |= {id(message): message for message in messages if message.lock_token is not None}

    def settled(self, message: ServiceBusReceivedMessage) -> None:
        """Note that *message* is settled."""
        self._messages.pop(id(message), None)
        self._given_up.discard(id(message))

    def failed(self, message: ServiceBusReceivedMessage) -> None:
        """Note that *message* could not be settled: nobody waits for it any more, but it may be tried again."""
        self._given_up.add(id(message))

    def held(self, session_until: datetime | None) -> int:
        """Return how many have yet to be settled and are still locked; *session_until* is their session's, if any."""
        now = datetime.now(UTC)
        until = {key: message.locked_until_utc or session_until for key, message in self._messages.items()}
        return sum(key not in self._given_up and (end is None or end > now) for key, end in until.items())
