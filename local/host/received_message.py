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
from local.host.dotnet_sections import plain_section
from local.host.dotnet_values import MAX_TIMESTAMP, CannotBind, CannotReceive
from shared.amqp import sections
from shared.amqp.codec import decode, decode_all, items_of, pairs_of
from shared.amqp.sections import Sections
from shared.amqp.values import NULL, Described, Malformed, Value

_MAX_TTL = 2**63
_KNOWN_DESCRIPTORS = ("com.microsoft:uri", "com.microsoft:timespan", "com.microsoft:datetime-offset")
_PROPERTY_NAMES = (
    *("message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding"),
    *("absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id"),
)

_MAY_BE_EMPTY = (0, 2, 4, 5)  # message-id, to, reply-to, correlation-id


class ReceivedMessage:
    """The decoded message; *tag* is the lock token of Service Bus, empty for an event."""

    def __init__(self, payload: bytes, tag: bytes) -> None:
        """Split the message; CannotReceive if it is not AMQP."""
        try:
            self._sections: Sections = sections.split(payload)
        except Malformed as error:
            raise CannotReceive(f"malformed AMQP: {error}") from error
        self.lock_token = str(uuid.UUID(bytes_le=tag)) if len(tag) == 16 else ""  # noqa: PLR2004 - a GUID

    @cached_property
    def annotations(self) -> Mapping[str, Value]:
        """Return the message annotations, without those of described types that .NET does not know."""
        return _known(self._sections.message_annotations, sections.MESSAGE_ANNOTATIONS)

    @cached_property
    def application_properties(self) -> Mapping[str, Value]:
        """Return the application properties, with the same exception."""
        return _known(self._sections.application_properties, sections.APPLICATION_PROPERTIES)

    @cached_property
    def _header(self) -> list[Value]:
        return _list(self._sections.header, 5)

    @cached_property
    def _properties(self) -> list[Value]:
        return _list(self._sections.properties, 13)

    def text(self, index: int) -> str | None:
        """Return the text of a field; None if it is absent, or if it is empty and neither an id nor an address."""
        value = self._properties[index]
        if value.kind == "binary" and isinstance(value.payload, bytes):
            return value.payload.hex().upper()
        if value.payload is None or (value.payload == "" and index not in _MAY_BE_EMPTY):
            return None
        return str(value.payload)

    def properties_as_json(self) -> dict[str, Any]:
        """Return the fields of the properties section that are set, by their names in AMQP."""
        found: dict[str, Any] = {}
        for index, name in enumerate(_PROPERTY_NAMES):
            payload = self._properties[index].payload
            if name == "user-id" and isinstance(payload, bytes):
                # Json.NET does not read the bytes of a ReadOnlyMemory<byte>.
                found[name] = {"Length": len(payload), "IsEmpty": not payload}
            elif name in ("absolute-expiry-time", "creation-time") and isinstance(payload, int):
                found[name] = newtonsoft.date_text(payload) + "+00:00"
            elif name == "group-sequence":
                found[name] = payload
            else:
                found[name] = self.text(index)
        return {name: value for name, value in found.items() if value is not None}

    def annotation_text(self, name: str) -> str | None:
        """Return the text of an annotation."""
        value = self.annotations.get(name, NULL)
        return None if value.payload is None else str(value.payload)

    def annotation_number(self, name: str) -> int:
        """Return the number of an annotation, 0 without one."""
        payload = self.annotations.get(name, NULL).payload
        return payload if isinstance(payload, int) else 0

    @property
    def delivery_count(self) -> int:
        """Return the number of this delivery, from 1."""
        payload = self._header[4].payload
        return payload + 1 if isinstance(payload, int) else 1

    @cached_property
    def enqueued_time(self) -> int:
        """Return the time of enqueueing in milliseconds since 1970 UTC."""
        return self.annotation_number("x-opt-enqueued-time")

    @cached_property
    def expires_at(self) -> int:
        """Return enqueued time plus time to live, or the end of DateTime without one, in milliseconds."""
        expiry, creation, ttl = self._properties[8].payload, self._properties[9].payload, self._header[2].payload
        if isinstance(expiry, int) and isinstance(creation, int):
            ttl = expiry - creation
        return min(self.enqueued_time + (ttl if isinstance(ttl, int) else _MAX_TTL), MAX_TIMESTAMP)

    def body(self) -> bytes:
        """Return the joined data sections, as `Body` and `EventBody` do; CannotBind for a body of another type."""
        parts = self._body_parts
        if any(number != sections.DATA for number, _ in parts) and not self._is_null(parts):
            raise CannotBind(f"a body of type {sections.NAMES[parts[0][0]]} as byte[]: System.NotSupportedException")
        return b"".join([value.payload for _, value in parts if isinstance(value.payload, bytes)])

    def text_body(self) -> str:
        """Return the body as text, U+FFFD for invalid UTF-8; a value body must be a string."""
        parts = self._body_parts
        if len(parts) == 1 and parts[0][0] == sections.VALUE and parts[0][1].kind == "string":
            return str(parts[0][1].payload)
        return self.body().decode("utf-8", "replace")

    @cached_property
    def _body_parts(self) -> list[tuple[int, Value]]:
        try:
            return sections.body_parts(self._sections.body)
        except Malformed as error:
            raise CannotReceive(f"malformed AMQP: {error}") from error

    @staticmethod
    def _is_null(parts: list[tuple[int, Value]]) -> bool:
        return len(parts) == 1 and parts[0][0] == sections.VALUE and parts[0][1].payload is None


def _known(section: bytes, number: int) -> Mapping[str, Value]:
    if not section:
        return {}
    entries = plain_section(section, number)
    if entries is not None:
        return {_text(key): _simple(value) for key, value in entries.items()}
    found = {str(key.payload): value for key, value in pairs_of(_value(section))}
    return {name: value for name, value in found.items() if not _is_dropped(value)}


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


def _list(section: bytes, count: int) -> list[Value]:
    fields = list(items_of(_value(section)))[:count] if section else []
    return fields + [NULL] * (count - len(fields))


def _value(section: bytes) -> Value:
    try:
        _, start = sections.descriptor(section, 0)
        return decode(section, start)[0]
    except Malformed as error:
        raise CannotReceive(f"malformed AMQP: {error}") from error
