"""The types of the fixtures in conftest.py that are functions."""

from collections.abc import Callable
from typing import Any, Protocol

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage

type TakeEntity = Callable[[str], str]
"""Returns the name of an unused entity of a kind."""


class SendMessages(Protocol):
    """Sends messages to a queue or topic."""

    def __call__(self, name: str, messages: ServiceBusMessage | list[ServiceBusMessage]) -> None: ...


class ReceiveMessages(Protocol):
    """Receives up to *count* messages of a queue; *options* are those of the receiver."""

    def __call__(self, name: str, count: int, **options: Any) -> list[ServiceBusReceivedMessage]: ...


def some[Found](value: Found | None) -> Found:
    """Return a value of a received message that the SDK's types allow to be missing."""
    assert value is not None
    return value
