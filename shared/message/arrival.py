"""
The origin of a message, and the data that the service reported with it, in every type in which the host may deliver it.

The Event Hubs extension of Azure's host below 6.5.2 changes the types: times become com.microsoft:datetime-offset, and
an offset becomes a long (docs/decisions/0003-azure-functions-host.md).
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from shared.amqp import map_section
from shared.amqp.codec import decode
from shared.amqp.scan import Positions, skip, text
from shared.amqp.sections import MESSAGE_ANNOTATIONS, descriptor
from shared.amqp.values import Described, Malformed


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


type Key = tuple[object, ...]


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

    @property
    def key(self) -> Key | None:
        """What identifies the message at every delivery, None if the service gave it no sequence number."""
        if self.sequence_number is None:
            return None
        # With the enqueued time, messages of an entity that was deleted and created again differ.
        key = self.origin, self.sequence_number, self.enqueued_time
        return key if self.event is None else (*key, self.event)


LOCK_END_IN_SESSIONS = 253_402_300_800_000
"""
What a message of a session names as the end of its lock: 10000-01-01T00:00:00Z, in milliseconds since 1970 UTC.

It says nothing about the session's lock, and no `datetime` can hold it. Source: issue 41981 of azure-sdk-for-java.
"""
_EVENT_PLACE = "x-opt-offset", "x-opt-sequence-number"
_NULL = 0x40
_EIGHT_BYTE_INTEGERS = frozenset((0x81, 0x83))  # long and timestamp
_INTEGERS = frozenset(("long", "int", "uint", "timestamp"))  # what a long holds
_TEXT_CODES = frozenset((0xA1, 0xA3, 0xB1, 0xB3))
_DATETIME_OFFSET = "com.microsoft:datetime-offset"
_TICKS = 10_000  # of 100 ns in a millisecond
_MILLISECONDS_AT_EPOCH = 62_135_596_800_000  # from the year 1 to 1970


def integer(section: bytes, found: Mapping[object, Positions], name: bytes) -> int | None:
    """Return a number, or a time in milliseconds since 1970 UTC; None for a missing one, Malformed for another type."""
    if name not in found:
        return None
    _, _, start, stop = found[name]
    code = section[start]
    if code in _EIGHT_BYTE_INTEGERS:
        return int.from_bytes(section[start + 1 : stop], signed=True)
    if code == _NULL:
        return None
    value, _ = decode(section, start, stop)
    payload = value.payload
    if isinstance(payload, Described) and payload.descriptor.payload == _DATETIME_OFFSET:
        ticks = payload.value.payload
        if isinstance(ticks, int):
            return ticks // _TICKS - _MILLISECONDS_AT_EPOCH
    if value.kind not in _INTEGERS or not isinstance(payload, int):
        raise Malformed(f"annotation {name.decode()}: got a {value.kind}, expected an integer or a time")
    return payload


def text_or_none(section: bytes, found: Mapping[object, Positions], name: bytes, *, may_be_number: bool) -> str | None:
    """Return a text, with *may_be_number* also the digits of a number; None for a missing one or another type."""
    if name not in found:
        return None
    _, _, start, stop = found[name]
    if section[start] in _TEXT_CODES:
        return text(section[start:stop])
    value, _ = decode(section, start, stop)
    # Service Bus may write a number under the name that holds the offset in Event Hubs.
    return str(value.payload) if may_be_number and value.kind in _INTEGERS else None


class EventPlace(NamedTuple):
    """Where an event is in its partition."""

    offset: str
    number: int


def event_place(content: bytes) -> EventPlace | None:
    """
    Return the place that the service has written into an event, None without one.

    Only the sections that the service writes are read, so that a malformed event has a place too.
    """
    position = 0
    try:
        while position < len(content):
            section, start = descriptor(content, position)
            stop = skip(content, start, len(content))
            if section == MESSAGE_ANNOTATIONS:
                values = [map_section.entry(content[position:stop], name) for name in _EVENT_PLACE]
                offset, number = (None if value is None else value.payload for value in values)
                return None if offset is None or not isinstance(number, int) else EventPlace(str(offset), number)
            position = stop
    except Malformed:
        return None
    return None
