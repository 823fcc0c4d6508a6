"""
A message as ServiceBusReceivedMessage and EventData read it, for the trigger metadata of stock bindings.

Sources: Azure/azure-sdk-for-net: ServiceBusReceivedMessage and AmqpMessageExtensions (sdk/servicebus/
Azure.Messaging.ServiceBus/src), EventData (sdk/eventhub/Azure.Messaging.EventHubs/src).
"""

import uuid
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

from local.host import newtonsoft
from local.host.dotnet_message import received, time_to_live
from local.host.dotnet_properties import STRINGS
from local.host.dotnet_simple import content_of
from local.host.dotnet_values import MAX_TIMESTAMP, NULL, TICKS, CannotBind, CannotReceive
from shared.amqp import sections, values
from shared.amqp.codec import decode, decode_all, pairs_of
from shared.amqp.sections import Sections
from shared.amqp.values import Described, Malformed, Value

_KNOWN_DESCRIPTORS = ("com.microsoft:uri", "com.microsoft:timespan", "com.microsoft:datetime-offset")
_PROPERTY_NAMES = (
    *("message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding"),
    *("absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id"),
)

_MAY_BE_EMPTY = (0, 2, 4, 5)  # message-id, to, reply-to, correlation-id


class ReceivedMessage:
    """The decoded message; *tag* is the lock token of Service Bus, empty for an event."""

    def __init__(self, payload: bytes, tag: bytes) -> None:
        """Decode the message; CannotReceive where .NET fails."""
        self.content = received(payload)
        self._payload = payload
        self.lock_token = str(uuid.UUID(bytes_le=tag)) if len(tag) == 16 else ""  # noqa: PLR2004 - a GUID

    @cached_property
    def annotations(self) -> Mapping[str, Value]:
        """Return the message annotations, without those of described types that .NET does not know."""
        return self._map(sections.MESSAGE_ANNOTATIONS)

    @cached_property
    def application_properties(self) -> Mapping[str, Value]:
        """Return the application properties, with the same exception."""
        return self._map(sections.APPLICATION_PROPERTIES)

    def _map(self, number: int) -> Mapping[str, Value]:
        if number not in self.content.maps:  # the conversion changes none of its values
            entries = self.content.properties_by_section.get(number, {})
            return {_text(key): _simple(value) for key, value in entries.items()}
        raw = _split(self._payload)
        is_annotations = number == sections.MESSAGE_ANNOTATIONS
        return _known(raw.message_annotations if is_annotations else raw.application_properties)

    def text(self, index: int) -> str | None:
        """Return the text of a field; None if it is absent, or if it is empty and neither an id nor an address."""
        field = self.content.properties[index]
        if field == NULL or not isinstance(field, bytes):
            return None
        text = content_of(field).decode()
        return None if not text and index not in _MAY_BE_EMPTY else text

    def properties_as_json(self) -> dict[str, Any]:
        """Return the fields of the properties section that are set, by their names in AMQP."""
        found: dict[str, Any] = {}
        for index, name in enumerate(_PROPERTY_NAMES):
            field = self.content.properties[index]
            if isinstance(field, int):
                found[name] = newtonsoft.date_text(field // TICKS) + "+00:00"
            elif field is None or field == NULL:
                continue
            elif name == "user-id":
                # Json.NET does not read the bytes of a ReadOnlyMemory<byte>.
                found[name] = {"Length": len(content_of(field)), "IsEmpty": not content_of(field)}
            elif name == "group-sequence":
                found[name] = int.from_bytes(field[1:])
            else:
                found[name] = self.text(index)
        return {name: value for name, value in found.items() if value is not None}

    def annotation_text(self, name: str) -> str | None:
        """Return the text of an annotation."""
        return text_of(self.annotations, name)

    def annotation_number(self, name: str) -> int:
        """Return the number of an annotation, 0 without one."""
        return number_of(self.annotations, name)

    @property
    def delivery_count(self) -> int:
        """Return the number of this delivery, from 1."""
        count = self.content.header[4]
        return 1 if count == NULL else int.from_bytes(count[1:]) + 1

    @cached_property
    def enqueued_time(self) -> int:
        """Return the time of enqueueing in milliseconds since 1970 UTC."""
        return self.annotation_number("x-opt-enqueued-time")

    @cached_property
    def expires_at(self) -> int:
        """Return enqueued time plus time to live, or the end of DateTime without one, in milliseconds."""
        ttl = time_to_live(self.content)
        return MAX_TIMESTAMP if ttl is None else min(self.enqueued_time + ttl // TICKS, MAX_TIMESTAMP)

    def body(self) -> bytes:
        """Return the joined data sections, as `Body` and `EventBody` do; CannotBind for a body of another type."""
        content = self.content
        if content.data is not None:
            return b"".join(content.data)
        if content.sequences is not None or content.value != NULL:
            number = sections.VALUE if content.sequences is None else sections.SEQUENCE
            raise CannotBind(f"a body of type {sections.NAMES[number]} as byte[]: System.NotSupportedException")
        return b""

    def text_body(self) -> str:
        """Return the body as text, U+FFFD for invalid UTF-8; a value body must be a string."""
        content = self.content
        value = content.value
        if content.data is None and content.sequences is None and isinstance(value, bytes) and value[0] in STRINGS:
            return content_of(value).decode()
        return self.body().decode("utf-8", "replace")


def annotations_of(payload: bytes) -> Mapping[str, Value]:
    """Return the annotations of a message whose other sections are not read."""
    return _known(_split(payload).message_annotations)


def text_of(annotations: Mapping[str, Value], name: str) -> str | None:
    """Return the text of an annotation."""
    value = annotations.get(name, values.NULL)
    return None if value.payload is None else str(value.payload)


def number_of(annotations: Mapping[str, Value], name: str) -> int:
    """Return the number of an annotation, 0 without one."""
    payload = annotations.get(name, values.NULL).payload
    return payload if isinstance(payload, int) else 0


def _split(payload: bytes) -> Sections:
    try:
        return sections.split(payload)
    except Malformed as error:
        raise CannotReceive(f"malformed AMQP: {error}") from error


def _known(section: bytes) -> Mapping[str, Value]:
    if not section:
        return {}
    try:
        _, start = sections.descriptor(section, 0)
        pairs = pairs_of(decode(section, start)[0])
    except Malformed as error:
        raise CannotReceive(f"malformed AMQP: {error}") from error
    return {str(key.payload): value for key, value in pairs if not _is_dropped(value)}


@lru_cache(maxsize=1024)
def _text(encoded: bytes) -> str:
    return str(decode_all(encoded).payload)


# Most values come again with other messages; those that do not are small.
@lru_cache(maxsize=1024)
def _simple(encoded: bytes) -> Value:
    return decode_all(encoded)


def _is_dropped(value: Value) -> bool:
    described = value.payload
    return isinstance(described, Described) and described.descriptor.payload not in _KNOWN_DESCRIPTORS
