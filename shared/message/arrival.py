"""Where a message comes from, and what the service reported with it."""

from typing import NamedTuple


class Origin(NamedTuple):
    """Where a task takes its messages from: the site's name and the entity's path in it."""

    site: str
    entity: str
    partition: str | None = None


class CarriedEvent(NamedTuple):
    """What identifies a message in an envelope: its source and id, and the kind of namespace that the source is in."""

    source: str
    id: str
    kind: str


class Arrival(NamedTuple):
    """
    What the service reports with a message when it delivers it.

    Units: times are milliseconds since 1970 UTC. Source: message annotations of the Service Bus and Event Hubs AMQP
    protocol guides.
    """

    origin: Origin
    sequence_number: int | None = None
    offset: str | None = None
    enqueued_time: int | None = None
    locked_until: int | None = None
    dead_letter_source: str | None = None
    event: CarriedEvent | None = None
    """What identifies a message from an envelope; the rest is then what the service reported with the envelope."""
