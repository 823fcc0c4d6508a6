"""What a de-duplicating receiver needs to know of messages: which are copies, how old they are, and their outcome."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal

from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.errors import WrongUse
from busway_clients.stamps import ENQUEUE_TIME, hop_time, hops, text_of, text_properties

PATIENCE = timedelta(minutes=1)

WithoutIdentity = Literal["process", "dead-letter"]


class Handled(Enum):
    """The outcome of a message."""

    PROCESSED = "processed by the application, and completed"
    DUPLICATE = "completed, since a copy had been processed"
    BEHIND = "completed, since it is behind the watermark"
    FAILED = "abandoned, since the application failed"
    BUSY = "abandoned, since another receiver is still processing a copy"
    DEAD_LETTERED = "dead-lettered by the application, or since it has no identity"


Identity = Callable[[ServiceBusReceivedMessage], str | None]

# Microsoft's sample writes the second name instead of the documented first.
_ORIGIN_TIMES = (ENQUEUE_TIME, "repl-enqueued-time")
SKEW = timedelta(seconds=10)


def by_message_id(message: ServiceBusReceivedMessage) -> str | None:
    """Return the message id, None for a message without one or with an empty one."""
    held = message.message_id
    return (held if held is None or type(held) is str else text_of(held)) or None


def by_property(name: str) -> Identity:
    """Return the function that identifies a message by an application property, with None if it is missing."""
    if not name:
        raise WrongUse("by_property: the name is empty, expected the name of an application property")

    def identity(message: ServiceBusReceivedMessage) -> str | None:
        value = text_properties(message.application_properties).get(name)
        return None if value is None or value == "" else str(value)

    return identity


def origin_time(message: ServiceBusReceivedMessage) -> datetime | None:
    """
    Return when a message was first enqueued in any namespace.

    That is the first time in `repl-enqueue-time` if a replication task has written it, else the message's own enqueued
    time. The year 1, which Microsoft's sample writes for messages that were not scheduled, is ignored.
    """
    properties = text_properties(message.application_properties)
    times = (hop_time(text) for name in _ORIGIN_TIMES for text in hops(properties, name))
    return next((time for time in times if time is not None), message.enqueued_time_utc)


@dataclass(frozen=True)
class Watermark:
    """
    The time until which the consumer has processed every message, for example at a switch of namespaces.

    Messages that were enqueued earlier are not processed again. The clocks of two namespaces may differ by *skew*: a
    message less than that before the watermark is checked by its identity. Use it only if the application knows its
    position: the time of the last message it saw is not enough, since an earlier one may have been abandoned. Raises
    WrongUse for a time without a time zone, or a negative skew.
    """

    processed_until: datetime
    skew: timedelta = SKEW

    def __post_init__(self) -> None:
        if self.processed_until.utcoffset() is None:
            raise WrongUse(f"processed_until of a watermark: {self.processed_until} has no time zone, expected one")
        if self.skew < timedelta():
            raise WrongUse(f"skew of a watermark: got {self.skew}, expected zero or more")

    def is_behind(self, message: ServiceBusReceivedMessage) -> bool:
        """Return whether a message has certainly been processed."""
        time = origin_time(message)
        return time is not None and time < self.processed_until - self.skew
