"""An event in a partition, and the bytes it is delivered as."""

import struct
from dataclasses import dataclass

from busway_broker.core.content import check_unique_keys, sections_of
from busway_broker.errors import Refusal
from shared.amqp.codec import decode, encode, pairs_of
from shared.amqp.errors import DECODE_ERROR
from shared.amqp.scan import map_entries, skip
from shared.amqp.sections import descriptor
from shared.amqp.values import Malformed, map_, string

PARTITION_KEY = "x-opt-partition-key"
_SERVICE_ASSIGNED = frozenset(("x-opt-enqueued-time", "x-opt-offset", PARTITION_KEY, "x-opt-sequence-number"))


@dataclass(slots=True, eq=False)
class EventContent:
    """
    The content of an event as its sender wrote it; immutable.

    Shape: annotations are encoded pairs; bare is the delivery annotations (`_DELIVERY`, if the sender wrote any), the
           properties, application properties, body and footer.
    """

    annotations: bytes
    annotation_count: int
    bare: bytes
    partition_key: str | None

    @property
    def size(self) -> int:
        """Return the distance from the offset of this event to the next one."""
        return max(1, len(self.bare) + len(self.annotations))


@dataclass(slots=True, eq=False)
class Event:
    """An event with what the partition has assigned to it; the enqueued time is in milliseconds since 1970 UTC."""

    content: EventContent
    sequence_number: int
    offset: int
    enqueued_time: int

    def offset_in(self, region: int | None) -> str:
        """
        Return the offset as clients see it in a geo-replicated region, or without geo-replication.

        Clients may only give it back: Azure does not say what is in it.
        """
        return str(self.offset) if region is None else f"{region}:{self.offset}:{self.sequence_number}"

    def encode(self, delivery_annotations: bytes = b"", region: int | None = None) -> bytes:
        """Return the event as it is delivered by a region, after *delivery_annotations* if any."""
        content = self.content
        bare = content.bare
        if bare.startswith(_DELIVERY):
            stop = skip(bare, len(_DELIVERY) - 1, len(bare))
            delivery_annotations, bare = _joined(delivery_annotations, bare[:stop]), bare[stop:]
        offset = self.offset_in(region).encode()
        pairs = b"".join(
            (
                _ASSIGNED.pack(_SEQUENCE_NUMBER, self.sequence_number, _ENQUEUED_TIME, self.enqueued_time),
                _OFFSET,
                b"\xa1%c%b" % (len(offset), offset),
                content.annotations,
            )
        )
        size_and_count = _SIZE_AND_COUNT.pack(len(pairs) + 4, 2 * (3 + content.annotation_count))
        return b"".join((delivery_annotations, b"\x00\x53\x72\xd1", size_and_count, pairs, bare))


def read_event(message: bytes, partition_key: str | None = None) -> EventContent:
    """Return the content of an encoded event; the partition key of its batch, if any, applies to it."""
    try:
        sections = sections_of(message)
        annotations, own_key = _read_annotations(sections.message_annotations)
        check_unique_keys(sections)
        delivery_annotations = _delivery_annotations(sections.delivery_annotations)
    except Malformed as error:
        raise Refusal(DECODE_ERROR, error.description) from error
    key = own_key if partition_key is None else partition_key
    if key is not None:
        annotations.append(_PARTITION_KEY + encode(string(key)))
    bare = (delivery_annotations, sections.properties, sections.application_properties, sections.body, sections.footer)
    return EventContent(b"".join(annotations), len(annotations), b"".join(bare), key)


def _delivery_annotations(section: bytes) -> bytes:
    """Return a sender's delivery annotations in the one encoding that `_DELIVERY` begins, nothing if it wrote none."""
    if not section:
        return b""
    entries = map_entries(section, descriptor(section, 0)[1], len(section))
    pairs = b"".join(section[start:stop] for _, start, _, stop in entries)
    return b"%b%b%b" % (_DELIVERY, _SIZE_AND_COUNT.pack(len(pairs) + 4, 2 * len(entries)), pairs) if pairs else b""


def _joined(own: bytes, senders: bytes) -> bytes:
    """Return the broker's section of delivery annotations, which may be missing, with the pairs of the sender's."""
    if not own:
        return senders
    maps = (decode(section, len(_DELIVERY) - 1)[0] for section in (own, senders))
    return _DELIVERY[:-1] + encode(map_(pair for value in maps for pair in pairs_of(value)))


def read_partition_key(message: bytes) -> str | None:
    """Return the partition key in the annotations of an encoded message."""
    try:
        return _read_annotations(sections_of(message).message_annotations)[1]
    except Malformed as error:
        raise Refusal(DECODE_ERROR, error.description) from error


def _read_annotations(section: bytes) -> tuple[list[bytes], str | None]:
    """Return the sender's pairs, encoded, and the partition key."""
    kept = []
    partition_key = None
    if section:
        for key, start, value_start, stop in map_entries(section, descriptor(section, 0)[1], len(section)):
            if key == PARTITION_KEY:
                payload = decode(section, value_start)[0].payload
                partition_key = payload if isinstance(payload, str) else None
            if key not in _SERVICE_ASSIGNED:
                kept.append(section[start:stop])
    return kept, partition_key


def _key(name: str, code: bytes = b"") -> bytes:
    return b"\xa3%c%b%b" % (len(name), name.encode(), code)


_SEQUENCE_NUMBER = _key("x-opt-sequence-number", b"\x81")
_ENQUEUED_TIME = _key("x-opt-enqueued-time", b"\x83")
_OFFSET = _key("x-opt-offset")
_PARTITION_KEY = _key(PARTITION_KEY)
_ASSIGNED = struct.Struct(f">{len(_SEQUENCE_NUMBER)}sq{len(_ENQUEUED_TIME)}sq")
_SIZE_AND_COUNT = struct.Struct(">II")
_DELIVERY = b"\x00\x53\x71\xd1"
