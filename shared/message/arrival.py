"""The origin of a message, and the data that the service reported with it."""

from typing import NamedTuple

from msgspec import Struct


class Origin(NamedTuple):
    """The source of a task: the name of the site and the path of the entity."""

    site: str
    entity: str
    partition: str | None = None


class CarriedEvent(NamedTuple):
    """
    The identity of a message in an envelope: its source, its id, the kind of the source's namespace, and its content.

    The sender of an envelope chooses its source and id, so that only the same content makes a copy of a message.
    """

    source: str
    id: str
    kind: str
    digest: str
    """The BLAKE2b digest of the AMQP sections, in hexadecimal."""


class Arrival(Struct, frozen=True, gc=False):
    """
    The data that the service reports when it delivers a message.

    Units: times are milliseconds since 1970 UTC. Source: message annotations of the Service Bus and Event Hubs AMQP
    protocol guides.
    """

    origin: Origin
    sequence_number: int | None = None
    offset: str | None = None
    enqueued_time: int | None = None
    locked_until: int | None = None
    """The end of the message's own lock; None in a session, whose lock no message names."""
    dead_letter_source: str | None = None
    event: CarriedEvent | None = None
    """What identifies a message from an envelope; the rest is then what the service reported with the envelope."""
    scheduled_time: int | None = None
    """When it was due, for a message that was scheduled; it had another sequence number before."""
