"""
The changes to a message between Service Bus and Event Hubs; docs/mapping.md has them as tables.

1. Between two entities of one kind nothing changes.
2. The session is the partition key: messages that are in order on one side are in order on the other.
3. A value that the other side cannot hold, or refuses, is stored in an application property and restored from it.
   `repl-sb-*` has values of Service Bus while the message is in Event Hubs, `repl-eh-*` and `repl-encoding-*` the
   reverse. Null means that there was no value.
4. A message's own value has precedence over the stored one: an application in between may have changed it.
"""

import base64
import binascii
from functools import lru_cache

from shared.amqp import map_section, sections
from shared.amqp.codec import decode, decode_all, encode
from shared.amqp.scan import join_list
from shared.amqp.values import NULL, TRUE, Malformed, Value, binary, string, uint, ulong
from shared.message.kafka_key import ANNOTATION as _KAFKA_KEY
from shared.message.kafka_key import restore_key
from shared.message.message import Message

TIME_TO_LIVE = "repl-sb-time-to-live"
DURABLE = "repl-sb-durable"
PRIORITY = "repl-sb-priority"
SCHEDULED_ENQUEUE_TIME = "repl-sb-scheduled-enqueue-time"
SERVICE_BUS_SESSION_ID = "repl-sb-session-id"
SERVICE_BUS_PARTITION_KEY = "repl-sb-partition-key"
EVENT_HUBS_SESSION_ID = "repl-eh-session-id"
EVENT_HUBS_PARTITION_KEY = "repl-eh-partition-key"
ENCODING = "repl-encoding-"
BASE64 = "base64"
AMQP_BASE64 = "amqp+base64"

_PARTITION_KEY = "x-opt-partition-key"
_SCHEDULED = "x-opt-scheduled-enqueue-time"
# IoT Hub names the device that an event is from in this annotation, and orders events by it.
_IOT_DEVICE = "iothub-connection-device-id"

_HEADER = b"\x00\x53\x70"
_NULL = b"\x40"
_HEADER_FIELDS = (DURABLE, PRIORITY, TIME_TO_LIVE)
_LARGEST_UINT = 2**32 - 1
_LONGEST_IN_HEADER = uint(_LARGEST_UINT)
_LONGEST_LIFE = 2**48
"""8,900 years, which a creation time can be added to."""

# The format codes of what Service Bus takes as no property: binaries, lists, maps and arrays.
_BINARIES = frozenset((0xA0, 0xB0))
_REFUSED = _BINARIES | {0x45, 0xC0, 0xD0, 0xC1, 0xD1, 0xE0, 0xF0}

type Changes = dict[str, Value | None]


def make_durable(message: Message) -> None:
    """Mark *message* as durable: Service Bus and Event Hubs keep all messages, other brokers only those."""
    message.durable = TRUE


def restore_event(message: Message) -> None:
    """
    Restore the broker properties of an event that was in Service Bus before.

    An event of a Kafka producer gets its key as its partition key, one of IoT Hub the device it is from. Raises
    Malformed if a stored property is not in the form that Busway writes.
    """
    if b"repl-sb-" in message.sections.application_properties:
        _restore_broker_properties(message)
    if _KAFKA_KEY.encode() in message.sections.message_annotations:
        restore_key(message)
    if b"iothub-" in message.sections.message_annotations and message.partition_key is None:
        device = message.annotation(_IOT_DEVICE)
        if device is not None and isinstance(device.payload, str):
            message.set_annotations({_PARTITION_KEY: string(device.payload)})


def keep_broker_properties(message: Message) -> None:
    """Store the values that an event cannot hold (header, scheduled time) in application properties of *message*."""
    _change(message, _kept_broker_properties(message))


def _kept_broker_properties(message: Message) -> Changes:
    changes: Changes = dict(_kept_header(message.sections.header))
    if changes.get(TIME_TO_LIVE) == _LONGEST_IN_HEADER and (life := message.time_to_live) is not None:
        changes[TIME_TO_LIVE] = ulong(life)
    message.sections.header = b""
    scheduled = message.annotation(_SCHEDULED)
    if scheduled is not None:
        changes[SCHEDULED_ENQUEUE_TIME] = scheduled
        message.set_annotations({_SCHEDULED: None})
    return changes


@lru_cache(maxsize=256)
def _kept_header(header: bytes) -> tuple[tuple[str, Value], ...]:
    """Return the properties for an encoded header; cached, because most messages share a few headers."""
    fields = zip(_HEADER_FIELDS, _header_fields(header), strict=False)
    return tuple((name, decode(field)[0]) for name, field in fields if field != _NULL)


def message_into_event(message: Message) -> None:
    """Make a message from Service Bus an event: its session becomes the partition key, encoded properties decoded."""
    changes: Changes = {}
    if b"repl-e" in message.sections.application_properties:
        changes = _decoded_properties(message) | _restored_event_order(message)
    if EVENT_HUBS_PARTITION_KEY not in changes:
        session_id, partition_key = message.session_id, message.partition_key
        if session_id and partition_key is None:
            message.set_annotations({_PARTITION_KEY: string(session_id)})
            changes[SERVICE_BUS_PARTITION_KEY] = NULL
        elif partition_key and not session_id and EVENT_HUBS_SESSION_ID not in changes:
            changes[SERVICE_BUS_SESSION_ID] = NULL
    _change(message, changes | _kept_broker_properties(message))


def event_into_message(message: Message) -> None:
    """Make an event a message for Service Bus: its partition key becomes the session, refused properties encoded."""
    changes = _encoded_properties(message)
    if b"repl-sb-" in message.sections.application_properties:
        changes |= _restored_message_order(message)
    session_id, partition_key = message.session_id, message.partition_key
    if partition_key and not session_id and SERVICE_BUS_SESSION_ID not in changes:
        message.session_id = partition_key
        changes[EVENT_HUBS_SESSION_ID] = NULL if session_id is None else string(session_id)
    elif session_id and partition_key != session_id and (partition_key or SERVICE_BUS_PARTITION_KEY not in changes):
        # Service Bus refuses two that differ; the session is what its consumers see.
        changes[EVENT_HUBS_PARTITION_KEY] = message.annotation(_PARTITION_KEY) or NULL
        message.set_annotations({_PARTITION_KEY: None})
    _change(message, changes)


def _change(message: Message, changes: Changes) -> None:
    """Set application properties."""
    if changes:
        # Converted properties have the spelling of the message, and names in another case are other properties.
        message.set_properties(changes, in_any_case=False)


def _restored_event_order(message: Message) -> Changes:
    """Undo what `event_into_message` did to session id and partition key; return the properties to remove."""
    changes: Changes = {}
    session_id = message.application_property(EVENT_HUBS_SESSION_ID)
    if session_id is not None:
        if message.session_id == message.partition_key:
            message.session_id = session_id.payload if isinstance(session_id.payload, str) else None
        changes[EVENT_HUBS_SESSION_ID] = None
    partition_key = message.application_property(EVENT_HUBS_PARTITION_KEY)
    if partition_key is not None:
        if partition_key != NULL and message.partition_key is None:
            message.set_annotations({_PARTITION_KEY: partition_key})
        changes[EVENT_HUBS_PARTITION_KEY] = None
    return changes


def _restored_message_order(message: Message) -> Changes:
    """Undo what `message_into_event` did to session id and partition key; return the properties to remove."""
    changes: Changes = {}
    if message.application_property(SERVICE_BUS_PARTITION_KEY) is not None:
        if message.partition_key == message.session_id:
            message.set_annotations({_PARTITION_KEY: None})
        changes[SERVICE_BUS_PARTITION_KEY] = None
    if message.application_property(SERVICE_BUS_SESSION_ID) is not None:
        changes[SERVICE_BUS_SESSION_ID] = None
    return changes


def _restore_broker_properties(message: Message) -> None:
    changes: Changes = {}
    fields = _header_fields(message.sections.header)
    fields += [_NULL] * (len(_HEADER_FIELDS) - len(fields))
    life = 0
    for index, name in enumerate(_HEADER_FIELDS):
        kept = message.application_property(name)
        if kept is None:
            continue
        if fields[index] == _NULL:
            if name == TIME_TO_LIVE and kept.kind != "uint":
                life = _milliseconds(kept)
                kept = uint(min(life, _LARGEST_UINT))
            fields[index] = encode(kept)
        changes[name] = None
    if changes:
        message.sections.header = join_list(_HEADER, fields)
    if life > _LARGEST_UINT:
        message.time_to_live = life
    scheduled = message.application_property(SCHEDULED_ENQUEUE_TIME)
    if scheduled is not None:
        message.set_annotations({_SCHEDULED: scheduled})
        changes[SCHEDULED_ENQUEUE_TIME] = None
    if changes:
        message.set_properties(changes)


def _milliseconds(kept: Value) -> int:
    # An application that passes events on with another SDK may have made an int or a long of it.
    if isinstance(kept.payload, int) and kept.kind != "boolean" and 0 <= kept.payload <= _LONGEST_LIFE:
        return kept.payload
    raise Malformed(f"property {TIME_TO_LIVE}: got a {kept.kind}, expected milliseconds as a uint")


def _header_fields(header: bytes) -> list[bytes]:
    return list(sections.fields_of(header))


def _encoded_properties(message: Message) -> Changes:
    """Return a text and the name of its encoding for each property that Service Bus refuses."""
    section = message.sections.application_properties
    changes: Changes = {}
    for name, _, value_start, stop in map_section.entries(section):
        if section[value_start] not in _REFUSED or name is None:
            continue
        if section[value_start] in _BINARIES:
            value, _ = decode(section, value_start, stop)
            content, encoding = value.payload, BASE64
        else:
            content, encoding = section[value_start:stop], AMQP_BASE64
        if isinstance(content, bytes):
            changes[name] = string(base64.b64encode(content).decode())
            changes[ENCODING + name] = string(encoding)
    return changes


def _decoded_properties(message: Message) -> Changes:
    """Return the values that `_encoded_properties` wrote as text."""
    changes: Changes = {}
    if ENCODING.encode() not in message.sections.application_properties:
        return changes
    values = dict(message.application_properties())
    for companion, encoding in values.items():
        if not companion.startswith(ENCODING):
            continue
        changes[companion] = None
        name = companion.removeprefix(ENCODING)
        if name in values:
            changes[name] = _decoded(name, values[name], encoding)
    return changes


def _decoded(name: str, text: Value, encoding: Value) -> Value:
    if not isinstance(text.payload, str) or encoding.payload not in (BASE64, AMQP_BASE64):
        expected = f"a string encoded as {BASE64} or {AMQP_BASE64}"
        raise Malformed(
            f"property {name}: got a {text.kind} that {ENCODING}{name} does not explain, expected {expected}"
        )
    try:
        content = base64.b64decode(text.payload, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed(f"property {name}: expected base64, as {ENCODING}{name} says, got other text") from error
    return binary(content) if encoding.payload == BASE64 else decode_all(content)
