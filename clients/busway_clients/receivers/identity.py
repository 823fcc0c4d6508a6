"""What makes two messages copies of one, and how old a message is."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import MINYEAR, UTC, datetime, timedelta

from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.errors import WrongUse
from busway_clients.senders.messages import text_of

Identity = Callable[[ServiceBusReceivedMessage], str | None]

# The second is what Microsoft's sample writes instead of the documented first.
_ORIGIN_TIMES = ("repl-enqueue-time", "repl-enqueued-time")
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
    time. The year 1, which Microsoft's sample writes for what was not scheduled, is no time.
    """
    held = message.application_properties or {}
    for name in _ORIGIN_TIMES:
        if written := held.get(name.encode(), held.get(name)):
            for each in text_of(written).split(";"):
                if (time := _time(each)) is not None:
                    return time
    return message.enqueued_time_utc


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if time.year == MINYEAR:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Watermark:
    """
    Until when everything has been processed, such as the consumer's position at a switch of namespaces.

    What was enqueued before it is not processed again. The clocks of two namespaces may differ by *skew*: what lies
    less than that before the mark is judged by its identity. It is for an application that knows its position; times
    of messages that it has merely seen are none, since an earlier one may have been abandoned. Raises WrongUse for one
    without a time zone, or a negative skew.
    """

    processed_until: datetime
    skew: timedelta = SKEW

    def __post_init__(self) -> None:
        if self.processed_until.utcoffset() is None:
            raise WrongUse(f"the time of a watermark: is {self.processed_until} without a time zone, expected one")
        if self.skew < timedelta():
            raise WrongUse(f"the skew of a watermark: is {self.skew}, expected none or a positive one")

    def is_behind(self, message: ServiceBusReceivedMessage) -> bool:
        """Return whether a message has certainly been processed."""
        time = origin_time(message)
        return time is not None and time < self.processed_until - self.skew
