"""
The fallback for hosts without SDK types: messages as the stock binding of Azure Functions hands them over.

It is used with cardinality one and data type binary, because batches of the stock binding mix up the properties of
their messages, and other data types change or refuse bodies. What even so does not survive, the README lists:
time to live, scheduled time, and every property type that JSON does not know.
"""

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import azure.functions as func

from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections, data
from shared.amqp.values import Value, boolean, double, int_, long, string, symbol, timestamp, ulong

_NULL = b"\x40"
_INT_LIMIT = 2**31
_LONG_LIMIT = 2**63


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
    return _encoded(annotations, fields, message.application_properties or {}, message.get_body())


def lock_tokens(message: func.ServiceBusMessage) -> list[bytes]:
    """Return the lock token of a Service Bus message of the stock binding, nothing where the host told none."""
    return [] if message.lock_token is None else [uuid.UUID(message.lock_token).bytes_le]


def event_content(event: func.EventHubEvent) -> bytes:
    """Return an event of the stock binding as an encoded AMQP message."""
    metadata: Mapping[str, Any] = event.metadata or {}
    annotations = {
        "x-opt-sequence-number": None if event.sequence_number is None else long(event.sequence_number),
        "x-opt-offset": None if event.offset is None else string(str(event.offset)),
        "x-opt-enqueued-time": _timestamp(event.enqueued_time),
        "x-opt-partition-key": _string(event.partition_key),
    }
    return _encoded(annotations, [], metadata.get("Properties") or {}, event.get_body())


def event_partition(event: func.EventHubEvent) -> str | None:
    """Return the partition that an event of the stock binding came from."""
    context = (event.metadata or {}).get("PartitionContext")
    if isinstance(context, str):
        context = json.loads(context)
    partition = context.get("PartitionId") if isinstance(context, Mapping) else None
    return None if partition is None else str(partition)


def _encoded(
    annotations: Mapping[str, Value | None], fields: list[Value | None], properties: Mapping[str, object], body: bytes
) -> bytes:
    present = [encode(symbol(name)) + encode(value) for name, value in annotations.items() if value is not None]
    named = [encode(string(name)) + encode(_value(value)) for name, value in properties.items()]
    return Sections(
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
    if time is None:
        return None
    # The host sends its UTC times without a zone.
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return timestamp(round(aware.timestamp() * 1000))
