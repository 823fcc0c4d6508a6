"""Where a message comes from, and what the service reported with it."""

from typing import NamedTuple


class Origin(NamedTuple):
    """Where a task takes its messages from: the site's name and the entity's path in it."""

    site: str
    entity: str
    partition: str | None = None


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
    kind: str | None = None
    """Of a message from an envelope, the kind of namespace that its source is in."""
