"""Messages and events as a consumer sees them, and the views to which they belong."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from busway_clients.sessions.fields import whole_number
from busway_clients.sessions.received import ENQUEUE_TIME, PATH, SEQUENCE, ReceivedMessage, hops, text_properties


class ReceivedEvent(Protocol):
    """The properties of azure.eventhub.EventData that are read."""

    @property
    def message_id(self) -> str | None: ...  # noqa: D102 - the SDK's own
    @property
    def sequence_number(self) -> int | None: ...  # noqa: D102 - likewise
    @property
    def enqueued_time(self) -> datetime | None: ...  # noqa: D102 - likewise
    @property
    def properties(self) -> Mapping[Any, Any]: ...  # noqa: D102 - likewise


@dataclass(frozen=True)
class Seen:
    """A message or event as a consumer sees it; number and time are those of its origin."""

    origin: str
    site: str
    partition: str = ""
    message_id: str | None = None
    number: int | None = None
    enqueued: float | None = None

    @property
    def view(self) -> str:
        """The view to which it belongs."""
        return view_name(self.origin, self.site, self.partition)


def seen_message(message: ReceivedMessage, site: str) -> Seen:
    """Return a Service Bus message as a consumer at *site* sees it."""
    return _seen(
        message.application_properties,
        site,
        "",
        message_id=message.message_id,
        number=message.sequence_number,
        enqueued=message.enqueued_time_utc,
    )


def seen_event(event: ReceivedEvent, site: str, partition: str) -> Seen:
    """Return an Event Hubs event as a consumer of *partition* at *site* sees it."""
    return _seen(
        event.properties,
        site,
        partition,
        message_id=event.message_id,
        number=event.sequence_number,
        enqueued=event.enqueued_time,
    )


def _seen(
    carried: Mapping[Any, Any] | None,
    site: str,
    partition: str,
    *,
    message_id: str | None,
    number: int | None,
    enqueued: datetime | None,
) -> Seen:
    properties = text_properties(carried)
    path = hops(properties, PATH)
    if not path:
        return Seen(site, site, partition, message_id, number, None if enqueued is None else enqueued.timestamp())
    numbers, times = hops(properties, SEQUENCE), hops(properties, ENQUEUE_TIME)
    first = whole_number(numbers[0]) if numbers else None
    return Seen(path[0], site, partition, message_id, first, _time(times[0]) if times else None)


def _time(text: str) -> float | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time.timestamp() if time.tzinfo is not None else None


def view_name(origin: str, site: str, partition: str) -> str:
    """Return the name of the view of messages from *origin* that are read at *site*."""
    return f"{origin}/{partition}" if origin == site else f"{origin}@{site}/{partition}"
