"""
Messages as the stock binding of Azure Functions hands them over, for tasks with `trigger: stock`.

1. What the binding reports is put back in its section; the rest is lost, and STOCK_LOSSES lists it.
2. The data type is binary, because other data types change or refuse bodies.
3. Messages of Service Bus are taken one by one, because batches of the stock binding mix up their properties. Events
   come in batches: what Busway reads of them is one JSON object per event.

Sources: ServiceBusTriggerBindingStrategy and EventHubTriggerBindingStrategy (GetSystemPropertiesForBinding) in
Azure/azure-sdk-for-net, and AmqpSystemProperties in its Azure.Messaging.EventHubs; docs/decisions/0006.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import azure.functions as func

from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections, data
from shared.amqp.values import Value, boolean, double, int_, long, string, symbol, timestamp, uint, ulong
from shared.message.message import SERVICE_ASSIGNED

STOCK_LOSSES = (
    "it gives properties the types of JSON (dates, GUIDs, decimals and binaries become text, numbers int, long or "
    "double), leaves out most of the header, annotations of Service Bus messages and the footer, joins data sections "
    "and refuses bodies of another kind; docs/fidelity.md lists them"
)

_NULL = b"\x40"
_INT_LIMIT = 2**31
_LONG_LIMIT = 2**63
# The host reports this for a message that never expires.
_FOR_EVER = datetime(9999, 12, 31, tzinfo=UTC)

# The keys of an event's SystemProperties that are fields of its properties section. The host gives
# only the length of the user id, and absolute-expiry-time is the target's to compute.
_TEXT_FIELDS = dict(
    zip(
        ("message-id", "to", "subject", "reply-to", "correlation-id", "group-id", "reply-to-group-id"),
        (0, 2, 3, 4, 5, 10, 12),
        strict=True,
    )
)
_SYMBOL_FIELDS = {"content-type": 6, "content-encoding": 7}
_CREATION_TIME, _GROUP_SEQUENCE = 9, 11
_FIELD_COUNT = 13
# Other keys that are not annotations of the sender.
_NOT_ANNOTATIONS = SERVICE_ASSIGNED.union(
    ("SequenceNumber", "Offset", "OffsetString", "PartitionKey", "EnqueuedTimeUtc", "x-opt-partition-key"),
    ("user-id", "absolute-expiry-time", "creation-time", "group-sequence", *_TEXT_FIELDS, *_SYMBOL_FIELDS),
)


def service_bus_content(message: func.ServiceBusMessage) -> bytes:
    """Return a Service Bus message of the stock binding as an encoded AMQP message."""
    annotations = {
        "x-opt-sequence-number": None if message.sequence_number is None else long(message.sequence_number),
        "x-opt-enqueued-time": _timestamp(message.enqueued_time_utc),
        "x-opt-partition-key": _string(message.partition_key),
        "x-opt-deadletter-source": _string(message.dead_letter_source),
    }
    fields = [
        _string(message.message_id),
        None,
        _string(message.to),
        _string(message.subject),
        _string(message.reply_to),
        _string(message.correlation_id),
        None if not message.content_type else symbol(message.content_type),
        None,
        None,
        None,
        _string(message.session_id),
        None,
        _string(message.reply_to_session_id),
    ]
    life = _time_to_live(message.enqueued_time_utc, message.expires_at_utc)
    return _encoded(annotations, fields, message.application_properties or {}, message.get_body(), life)


def event_contents(events: Sequence[func.EventHubEvent]) -> list[bytes]:
    """Return a batch of events of the stock binding as encoded AMQP messages."""
    metadata: Mapping[str, Any] = events[0].metadata or {}
    described = []
    for name in ("SystemPropertiesArray", "PropertiesArray"):
        entries = metadata.get(name)
        if not isinstance(entries, list) or len(entries) != len(events):
            seen = "none" if entries is None else str(len(entries)) if isinstance(entries, list) else "no list"
            msg = f"trigger metadata {name}: got {seen}, expected one entry for each of {len(events)} events"
            raise ValueError(msg)
        described.append(entries)
    return [_event_content(*each) for each in zip(events, *described, strict=True)]


def lock_tokens(message: func.ServiceBusMessage) -> list[bytes]:
    """Return the lock token of a Service Bus message of the stock binding, none if the host gave none."""
    return [] if message.lock_token is None else [uuid.UUID(message.lock_token).bytes_le]


def event_partition(events: Sequence[func.EventHubEvent]) -> str | None:
    """Return the partition that a batch of events of the stock binding came from."""
    context = (events[0].metadata or {}).get("PartitionContext")
    if isinstance(context, str):
        context = json.loads(context)
    partition = context.get("PartitionId") if isinstance(context, Mapping) else None
    return None if partition is None else str(partition)


def _event_content(event: func.EventHubEvent, system: Mapping[str, Any], properties: Mapping[str, Any] | None) -> bytes:
    # Since bundle 4.3x the text of the offset has a key of its own, as an offset need not be a number any more.
    offset = system.get("OffsetString") or system.get("Offset")
    assigned = {
        "x-opt-sequence-number": None if event.sequence_number is None else long(event.sequence_number),
        "x-opt-offset": None if offset is None else string(str(offset)),
        "x-opt-enqueued-time": _timestamp(event.enqueued_time),
        "x-opt-partition-key": _string(system.get("PartitionKey")),
    }
    own = {name: _value(value) for name, value in system.items() if name not in _NOT_ANNOTATIONS}
    fields: list[Value | None] = [None] * _FIELD_COUNT
    for names, make in ((_TEXT_FIELDS, string), (_SYMBOL_FIELDS, symbol)):
        for name, index in names.items():
            text = system.get(name)
            fields[index] = make(text) if isinstance(text, str) and text else None
    created, sequence = system.get("creation-time"), system.get("group-sequence")
    fields[_CREATION_TIME] = _timestamp(datetime.fromisoformat(created)) if isinstance(created, str) else None
    fields[_GROUP_SEQUENCE] = uint(sequence) if isinstance(sequence, int) else None
    return _encoded({**assigned, **own}, fields, properties or {}, event.get_body())


def _encoded(
    annotations: Mapping[str, Value | None],
    fields: Sequence[Value | None],
    properties: Mapping[str, object],
    body: bytes,
    time_to_live: int | None = None,
) -> bytes:
    present = [encode(symbol(name)) + encode(value) for name, value in annotations.items() if value is not None]
    named = [encode(string(name)) + encode(_value(value)) for name, value in properties.items()]
    life = b"" if time_to_live is None else join_list(b"\x00\x53\x70", [_NULL, _NULL, encode(uint(time_to_live))])
    return Sections(
        header=life,
        message_annotations=join_map(b"\x00\x53\x72", present, len(present)) if present else b"",
        properties=join_list(b"\x00\x53\x73", [_NULL if field is None else encode(field) for field in fields]),
        application_properties=join_map(b"\x00\x53\x74", named, len(named)) if named else b"",
        body=data(body),
    ).encode()


def _value(value: object) -> Value:
    """Return the AMQP value nearest to what JSON has left of a property; what has no type there stays JSON text."""
    match value:
        case None:
            return Value(0x40, None)
        case bool():
            return boolean(value)
        case int() if -_INT_LIMIT <= value < _INT_LIMIT:
            return int_(value)
        case int() if -_LONG_LIMIT <= value < _LONG_LIMIT:
            return long(value)
        case int() if 0 <= value < 2 * _LONG_LIMIT:
            return ulong(value)
        case float():
            return double(value)
        case str():
            return string(value)
    return string(json.dumps(value, ensure_ascii=False))


def _string(text: str | None) -> Value | None:
    return None if text is None else string(text)


def _timestamp(time: datetime | None) -> Value | None:
    return None if time is None else timestamp(round(_in_utc(time).timestamp() * 1000))


def _in_utc(time: datetime) -> datetime:
    # The host sends its UTC times without a zone.
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _time_to_live(enqueued: datetime | None, expires: datetime | None) -> int | None:
    """Return the milliseconds between two times, None where the message is not to expire within a uint of them."""
    if enqueued is None or expires is None or _in_utc(expires) >= _FOR_EVER:
        return None
    life = (_in_utc(expires) - _in_utc(enqueued)) // timedelta(milliseconds=1)
    return life if 0 < life < 2**32 else None
