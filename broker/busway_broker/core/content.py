"""
The content of a message as its sender wrote it: checked, with its routing data read and its bytes kept.

1. Application properties, body and footer keep their bytes; so do properties, except that a missing message id is
   added.
2. Annotations that only the service may assign are dropped, the sender's are kept.
3. What Service Bus rejects raises a `Refusal` with the condition that the SDKs map to their exception.
"""

import os
import struct
from dataclasses import dataclass
from functools import lru_cache

from busway_broker import errors
from busway_broker.errors import Refusal
from shared.amqp.codec import decode
from shared.amqp.errors import DECODE_ERROR, NOT_ALLOWED
from shared.amqp.map_section import by_key
from shared.amqp.scan import BINARIES, compound_content, join_list, list_fields, map_entries, skip
from shared.amqp.sections import DATA, NAMES, SEQUENCE, VALUE, Sections, descriptor, fields_of, split
from shared.amqp.values import Malformed, Value

MAX_HEADERS_BYTES = 64 * 1024
MAX_PROPERTY_BYTES = 32 * 1024
"""Of one application property; NServiceBus.Transport.AzureServiceBus issue 171, Azure/azure-sdk-for-net 15325."""
MAX_TIME_TO_LIVE = 2**32 - 1
MAX_IDENTIFIER_CHARACTERS = 128

LOCK_TOKEN = "x-opt-lock-token"  # noqa: S105 - the name of an annotation
SERVICE_ASSIGNED = frozenset(
    (
        "x-opt-deadletter-source",
        "x-opt-enqueue-sequence-number",
        "x-opt-enqueued-time",
        LOCK_TOKEN,
        "x-opt-locked-until",
        "x-opt-message-state",
        "x-opt-partition-id",
        "x-opt-sequence-number",
    )
)
_NOT_NULL = frozenset(("x-opt-enqueue-sequence-number", "x-opt-message-state", "x-opt-scheduled-enqueue-time"))

_PROPERTIES_PREFIX = b"\x00\x53\x73"
_SHORT_PROPERTIES = b"\x00\x53\x73\xc0"
_SHORT_START = 6
NULL = b"\x40"
_USUAL_HEADER = 64  # bytes; larger ones would take much memory
_EXPIRY, _CREATION, _GROUP_ID = 8, 9, 10
_NEVER = 253_402_300_799_000
"""The last second of the year 9999, which .NET writes for a message that lives forever."""
# Those of @azure/service-bus are an empty map.
_NO_ANNOTATIONS = (b"", b"\x00\x53\x72\xd1\x00\x00\x00\x04\x00\x00\x00\x00")
_NO_HEADER = b"\x40\x40"
_SIZE_AND_COUNT = struct.Struct(">II")
_UINT32 = struct.Struct(">I")
_MESSAGE_ID_CODES = frozenset(b"\xa1\xb1\xa0\xb0\x44\x53\x80\x98")
"""Of texts, binaries, ulongs and uuids."""
_BODIES = (DATA, SEQUENCE, VALUE)
_REPEATABLE = (DATA, SEQUENCE)
_LONG_DATA = b"\x00\x53\x75\xb0"
_LONG_DATA_PREFIX = 8  # with the length


@dataclass(slots=True, eq=False)
class Content:
    """
    The content of a message; immutable, because the copies in several subscriptions share it.

    Shape: header is the encoded durable and priority; annotations are encoded key-value pairs; bare is the encoded
    properties, application properties, body and footer. Delivery annotations are the sender's pairs, encoded.
    Units: time_to_live and scheduled_enqueue_time in milliseconds.
    """

    header: bytes
    annotations: bytes
    annotation_count: int
    bare: bytes
    session_id: str | None
    partition_key: str | None
    time_to_live: int | None
    scheduled_enqueue_time: int | None
    delivery_annotations: bytes = b""

    @property
    def message_id(self) -> bytes:
        """Return the encoded message id, null if a rule's action has removed it."""
        # Read again when it is needed, for duplicate detection and storage: kept, it would take 48 bytes a message.
        bare = self.bare
        count, start, stop = compound_content(bare, descriptor(bare, 0)[1], len(bare))
        return bare[start : skip(bare, start, stop)] if count else NULL

    @property
    def order_key(self) -> str | None:
        """Return the session id, also an empty one, or the partition key."""
        return self.session_id if self.session_id is not None else self.partition_key or None

    @property
    def size(self) -> int:
        """Return the bytes that count against an entity's size."""
        return len(self.bare) + len(self.annotations) + len(self.delivery_annotations)


def sections_of(message: bytes) -> Sections:
    """
    Return the sections of a message in any order; Malformed for two of one kind, or for two kinds of body.

    azure-servicebus and azure-eventhub write the delivery annotations behind the body and the footer, which AMQP 1.0
    does not allow; Microsoft's AMQP library for .NET reads sections in any order.
    """
    try:
        return split(message)
    except Malformed:
        # Nearly all messages are in order: only the others are read twice.
        return split(_in_order(message))


def _in_order(message: bytes) -> bytes:
    """Return the message with its sections in the order of the specification."""
    # Lists: joining bytes one by one would take quadratic time for a body of many small sections.
    found: dict[int, list[bytes]] = {}
    position = 0
    while position < len(message):
        number, content = descriptor(message, position)
        stop = skip(message, content, len(message))
        if number in found and number not in _REPEATABLE:
            raise Malformed(f"{NAMES[number]} at byte {position}: the message has two, expected one")
        found.setdefault(number, []).append(message[position:stop])
        position = stop
    kinds = [NAMES[number] for number in _BODIES if number in found]
    if len(kinds) > 1:
        raise Malformed(f"the body is {' and '.join(kinds)}, expected one kind")
    # The numbers of the sections rise in the order of the specification.
    return b"".join(part for number in sorted(found) for part in found[number])


def read_content(message: bytes) -> Content:
    """Return the content of an encoded *message*; a Refusal if Service Bus would reject it."""
    try:
        sections = sections_of(message)
        header, time_to_live = _read_header(sections.header) if sections.header else (_NO_HEADER, None)
        annotations, count, partition_key, scheduled = (
            (b"", 0, None, None)
            if sections.message_annotations in _NO_ANNOTATIONS
            else _read_annotations(sections.message_annotations)
        )
        properties, session_id = _read_properties(sections.properties)
        if time_to_live == MAX_TIME_TO_LIVE:
            time_to_live = _longer_life(properties)
        if len(sections.application_properties) > MAX_PROPERTY_BYTES:
            check_property_sizes(sections.application_properties)
        _check_application_properties(sections.application_properties)
        _check_annotations(sections)
        kept = _without_lock_token(sections.delivery_annotations) if sections.delivery_annotations else b""
    except Malformed as error:
        raise Refusal(DECODE_ERROR, error.description) from error
    if len(sections.application_properties) + len(sections.message_annotations) > MAX_HEADERS_BYTES:
        raise Refusal(
            errors.MESSAGE_SIZE_EXCEEDED,
            "Error while processing the message header stream: the size quota for this stream "
            f"({MAX_HEADERS_BYTES}) has been exceeded.",
        )
    if partition_key is not None and session_id is not None and partition_key != session_id:
        raise Refusal(errors.ARGUMENT_ERROR, "the partition key differs from the session id, expected them to be equal")
    return Content(
        header,
        annotations,
        count,
        properties + sections.application_properties + sections.body + sections.footer,
        session_id,
        partition_key,
        time_to_live,
        scheduled,
        kept,
    )


def _without_lock_token(section: bytes) -> bytes:
    """Return the encoded pairs of the sender's delivery annotations, which the receiver gets too."""
    entries = map_entries(section, descriptor(section, 0)[1], len(section))
    return b"".join(section[start:stop] for key, start, _, stop in entries if key != LOCK_TOKEN)


def check_unique_keys(sections: Sections) -> None:
    """Raise Malformed if the application properties, the annotations or the footer have the same key twice."""
    by_key(sections.application_properties, "application-properties")
    _check_annotations(sections)


def _check_annotations(sections: Sections) -> None:
    if sections.message_annotations not in _NO_ANNOTATIONS:
        by_key(sections.message_annotations, "message-annotations")
    if sections.footer:
        by_key(sections.footer, "footer")


def _read_header(section: bytes) -> tuple[bytes, int | None]:
    """Return the encoded durable and priority, and the time to live."""
    return _header_of(section) if len(section) <= _USUAL_HEADER else _header_of.__wrapped__(section)


# Senders write few different headers. Remembering them saves 5 µs for each message that has one, and their memory.
@lru_cache
def _header_of(section: bytes) -> tuple[bytes, int | None]:
    fields = list_fields(section, descriptor(section, 0)[1], len(section))
    time_to_live = decode(fields[2])[0] if len(fields) > 2 else None
    kept = b"".join([*fields, NULL, NULL][:2])
    life = _integer(time_to_live, "ttl")
    if life == 0:
        # Azure/amqpnetlite issue 333.
        raise unprocessable()
    return kept, life


def _longer_life(properties: bytes) -> int | None:
    """
    Return a time to live for which the header has no room, None for a message that lives forever.

    It is the time between creation and expiry; Azure/azure-sdk-for-net issues 38875, 40915, for Java 17678.
    """
    fields = [decode(each)[0] for each in fields_of(properties)[_EXPIRY : _CREATION + 1]]
    if len(fields) <= _CREATION - _EXPIRY:
        return None
    expiry, creation = (field.payload for field in fields)
    if not isinstance(expiry, int) or not isinstance(creation, int) or expiry - creation < MAX_TIME_TO_LIVE:
        return None
    # A creation long before 1970 makes it a number that no storage holds.
    return expiry - creation if max(expiry, expiry - creation) < _NEVER else None


def _read_annotations(section: bytes) -> tuple[bytes, int, str | None, int | None]:
    """Return the sender's encoded pairs, their number, the partition key and the scheduled enqueue time."""
    kept = []
    partition_key = scheduled = None
    for key, start, value_start, stop in map_entries(section, descriptor(section, 0)[1], len(section)):
        if key in _NOT_NULL and section[value_start:stop] == NULL:
            raise Refusal(NOT_ALLOWED, f"annotation {key} is null, expected a value or no annotation")
        if key in SERVICE_ASSIGNED:
            continue
        if key == "x-opt-partition-key":
            partition_key = _identifier(section[value_start:stop], "partition key")
        elif key == "x-opt-scheduled-enqueue-time":
            scheduled = _integer(decode(section, value_start)[0], key)
        kept.append(section[start:stop])
    return b"".join(kept), len(kept), partition_key, scheduled


def _read_properties(section: bytes) -> tuple[bytes, str | None]:
    """Return the section (with a message id added if it is missing) and the session id."""
    if not section:
        return join_list(_PROPERTIES_PREFIX, [_new_message_id()]), None
    if section.startswith(_SHORT_PROPERTIES) and len(section) > _SHORT_START:
        # Nearly all, without a call; `split` has checked the size.
        start, count, first, stop = 3, section[5], _SHORT_START, len(section)
    else:
        start = descriptor(section, 0)[1]
        count, first, stop = compound_content(section, start, len(section))
    message_id, group_id = NULL, NULL
    rest = skip(section, first, stop) if count else first
    if count:
        message_id = section[first:rest]
    # The rest is null in most messages; not walking over it saves 2.5 µs a message.
    nulls = stop - rest
    if nulls != max(count - 1, 0) or nulls != section.count(NULL, rest, stop):
        fields = fields_of(section)
        if len(fields) > _GROUP_ID:
            group_id = fields[_GROUP_ID]
    session_id = None if group_id == NULL else _identifier(group_id, "session id")
    if message_id == NULL:
        content = _new_message_id() + section[rest:]
        section = b"%b\xd0%b%b" % (section[:start], _SIZE_AND_COUNT.pack(len(content) + 4, max(count, 1)), content)
    elif message_id[0] not in _MESSAGE_ID_CODES:
        raise Malformed(
            "the type of the message id is not one of string, ulong, uuid and binary"
        )  # Azure/azure-sdk-for-js issue 1098
    elif len(message_id) > MAX_IDENTIFIER_CHARACTERS:
        _identifier(message_id, "message id")
    return section, session_id


def _new_message_id() -> bytes:
    # Azure's own SDKs cannot settle a message without one.
    return b"\xa1\x20" + os.urandom(16).hex().encode()


def _identifier(field: bytes, what: str) -> str | None:
    """Return the text of an identifier, None for the other types that AMQP allows."""
    payload = decode(field)[0].payload
    if not isinstance(payload, str):
        return None
    if len(payload) > MAX_IDENTIFIER_CHARACTERS:
        raise Refusal(
            errors.ARGUMENT_OUT_OF_RANGE,
            f"the {what} has {len(payload)} characters, expected at most {MAX_IDENTIFIER_CHARACTERS}",
        )
    return payload


def _integer(value: Value | None, what: str) -> int | None:
    if value is None or value.payload is None:
        return None
    if isinstance(value.payload, int) and value.kind in ("uint", "timestamp"):
        return value.payload
    raise Malformed(f"{what}: got a {value.kind}")


def unprocessable() -> Refusal:
    """Return the refusal for a message or batch that the service cannot store, without a word why."""
    return Refusal(errors.INTERNAL_ERROR, "The service was unable to process the request; please retry the operation.")


def check_property_sizes(section: bytes) -> None:
    """Raise a Refusal if the section of the application properties has one that is too large."""
    for _, _, value_start, stop in map_entries(section, descriptor(section, 0)[1], len(section)):
        if stop - value_start > MAX_PROPERTY_BYTES:
            raise unprocessable()


def _check_application_properties(section: bytes) -> None:
    """Refuse binary values, as Service Bus does; raises Malformed for a key that is there twice."""
    for start, _, value_start, _ in by_key(section, "application-properties").values():
        if section[value_start] in BINARIES:
            key = decode(section, start)[0].payload
            raise Refusal(
                errors.MESSAGE_SIZE_EXCEEDED,
                f"application property {key!r} is binary, expected a type Service Bus takes (Base64 text for bytes)",
            )


def read_batch(message: bytes) -> list[bytes]:
    """Return the encoded messages of a batch, which has one data section for each."""
    try:
        return _data_of(sections_of(message).body)
    except Malformed as error:
        raise Refusal(DECODE_ERROR, error.description) from error


def _data_of(body: bytes) -> list[bytes]:
    parts = []
    position = 0
    end = len(body)
    while position < end:
        if body.startswith(_LONG_DATA, position) and position + _LONG_DATA_PREFIX <= end:
            # Nearly all batches, read without a call for each message.
            start = position + _LONG_DATA_PREFIX
            position = start + _UINT32.unpack_from(body, start - 4)[0]
            if position > end:
                raise Malformed("batch: its last message reaches beyond its end")
            parts.append(body[start:position])
            continue
        number, start = descriptor(body, position)
        code = body[start]
        if number != DATA or code not in BINARIES:
            raise Malformed(f"batch: section 0x{number:02x} in its body, expected data sections only")
        position = skip(body, start, end)
        parts.append(body[start + (2 if code == 0xA0 else 5) : position])
    return parts
