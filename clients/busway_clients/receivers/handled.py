"""What a de-duplicating receiver needs of the SDK, of the application, and the outcome of a message."""

from datetime import timedelta
from enum import Enum
from typing import Any, Literal, Protocol

from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.errors import ClientsError

PATIENCE = timedelta(minutes=1)

WithoutIdentity = Literal["process", "dead-letter"]


class DeadLetter(ClientsError):
    """Raised by an application to dead-letter a message that no retry can process."""

    def __init__(self, reason: str, description: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.description = description


class Handled(Enum):
    """The outcome of a message."""

    PROCESSED = "processed by the application, and completed"
    DUPLICATE = "completed, since a copy had been processed"
    BEHIND = "completed, since it is behind the watermark"
    FAILED = "abandoned, since the application failed"
    BUSY = "abandoned, since another receiver is still processing a copy"
    DEAD_LETTERED = "dead-lettered by the application, or since it has no identity"


class SdkReceiver(Protocol):
    """The methods used of the SDK's receiver, synchronous or asynchronous."""

    @property
    def session(self) -> Any:  # noqa: ANN401 - the SDK's type
        """The locked session, None for an entity without sessions."""

    def receive_messages(self, max_message_count: int | None = 1, max_wait_time: float | None = None) -> Any:  # noqa: ANN401 - the SDK's type
        """Return messages, or an awaitable of them."""

    def complete_message(self, message: ServiceBusReceivedMessage) -> Any:  # noqa: ANN401 - the SDK's type
        """Complete a message."""

    def abandon_message(self, message: ServiceBusReceivedMessage) -> Any:  # noqa: ANN401 - the SDK's type
        """Abandon a message."""

    def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> Any:  # noqa: ANN401 - the SDK's type
        """Dead-letter a message."""

    def renew_message_lock(self, message: ServiceBusReceivedMessage) -> Any:  # noqa: ANN401 - the SDK's type
        """Renew the lock on a message."""
