"""
Messages and events as a consumer sees them, and the views to which they belong.

Any producer can write the stamps of a copy. So a stamp is only compared with the number and time that a service gave to
the original. A mark notes where a copy was read, by the number and time that the service of that site gave it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Protocol

from busway_clients.sessions.fields import whole_number
from busway_clients.sessions.received import ENQUEUE_TIME, PATH, SEQUENCE, ReceivedMessage, hops, text_properties

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STAMPS = "repl-"
_CLOCKS_DIFFER = 300.0
"""How far the clocks of two namespaces may differ, in seconds: no copy arrives earlier than it was sent."""


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
    """
    A message or event as a consumer sees it; number and time are those of its origin.

    *read_number*, *read_enqueued*: of a copy, the number and the time that the service at *site* gave it. *content*: a
    digest by which copies are recognised besides the id.
    """

    origin: str
    site: str
    partition: str = ""
    message_id: str | None = None
    number: int | None = None
    enqueued: float | None = None
    read_number: int | None = None
    read_enqueued: float | None = None
    content: str = ""

    @property
    def is_copy(self) -> bool:
        """Whether it is read at another site than its origin."""
        return self.origin != self.site

    @property
    def view(self) -> str:
        """The view to which it belongs."""
        return view_name(self.origin, self.site, self.partition)


def seen_message(message: ReceivedMessage, site: str) -> Seen:
    """Return a Service Bus message as a consumer at *site* sees it."""
    return _seen(
        message,
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
        event,
        event.properties,
        site,
        partition,
        message_id=event.message_id,
        number=event.sequence_number,
        enqueued=event.enqueued_time,
    )


def _seen(
    message: ReceivedMessage | ReceivedEvent,
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
    arrived = None if enqueued is None else enqueued.timestamp()
    content = _digest(message, properties)
    # What names no other site is no copy, whatever its path says.
    if not path or path[0] == site or not _SITE.fullmatch(path[0]):
        return Seen(site, site, partition, message_id, number, arrived, content=content)
    numbers, times = hops(properties, SEQUENCE), hops(properties, ENQUEUE_TIME)
    first = whole_number(numbers[0]) if numbers else None
    sent = _time(times[0]) if times else None
    if sent is not None and arrived is not None and sent > arrived + _CLOCKS_DIFFER:
        sent = None
    return Seen(path[0], site, partition, message_id, first, sent, number, arrived, content)


def _digest(message: ReceivedMessage | ReceivedEvent, properties: Mapping[str, Any]) -> str:
    """Return a digest of the body and of the properties, without those that Busway writes."""
    body = getattr(message, "body", None)
    if isinstance(body, Iterable) and not isinstance(body, str | bytes | Mapping):
        body = list(body)
    named = sorted((name, repr(value)) for name, value in properties.items() if not str(name).startswith(_STAMPS))
    return short_digest(repr((body, named)))


def short_digest(text: str) -> str:
    """Return a digest of *text* that fits into a mark many times."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _time(text: str) -> float | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time.timestamp() if time.tzinfo is not None else None


def view_name(origin: str, site: str, partition: str) -> str:
    """Return the name of the view of messages from *origin* that are read at *site*."""
    return f"{origin}/{partition}" if origin == site else f"{origin}@{site}/{partition}"
