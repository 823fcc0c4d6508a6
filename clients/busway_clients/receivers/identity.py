"""What makes two messages copies of one, and how old a message is."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.errors import WrongUse
from busway_clients.senders.messages import text_of

Identity = Callable[[ServiceBusReceivedMessage], str | None]

_ORIGIN_TIME = "repl-enqueue-time"
SKEW = timedelta(seconds=10)


def by_message_id(message: ServiceBusReceivedMessage) -> str | None:
    """Return the message id, None for a message without one or with an empty one."""
    held = message.message_id
    return (held if held is None or type(held) is str else text_of(held)) or None


def by_property(name: str) -> Identity:
    """Return the identity by an application property, which is missing for a message without it."""
    if not name:
        raise WrongUse("the property that identifies a message: is empty, expected a name")
    encoded = name.encode()

    def identity(message: ServiceBusReceivedMessage) -> str | None:
        held = message.application_properties or {}
        value = held.get(encoded, held.get(name))
        return None if value is None or value in ("", b"") else text_of(value)

    return identity


def origin_time(message: ServiceBusReceivedMessage) -> datetime | None:
    """
    Return when a message was first enqueued anywhere.

    That is the first time in `repl-enqueue-time`, where a replication task has written it; else its own enqueued
    time.
    """
    held = message.application_properties or {}
    written = held.get(_ORIGIN_TIME.encode(), held.get(_ORIGIN_TIME))
    if written:
        try:
            time = datetime.fromisoformat(text_of(written).partition(";")[0].strip())
        except ValueError:
            return message.enqueued_time_utc
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return message.enqueued_time_utc


class Watermark(NamedTuple):
    """
    Until when everything has been processed, such as the consumer's position at a switch of namespaces.

    What was enqueued before it is not processed again. The clocks of two namespaces may differ by *skew*: what lies
    less than that before the mark is judged by its identity. It is for an application that knows its position; times
    of messages that it has merely seen are none, since an earlier one may have been abandoned.
    """

    processed_until: datetime
    skew: timedelta = SKEW

    def is_behind(self, message: ServiceBusReceivedMessage) -> bool:
        """Tell whether a message has been processed for certain."""
        time = origin_time(message)
        return time is not None and time < self.processed_until - self.skew
