"""
A Kafka record as a message: what `shared.ends.kafka.record` wrote gets its types and places back.

A header that was written by another producer becomes an application property: text, or Base64 if it is not UTF-8,
because Azure's host can pass no binary property to a function. So does one that does not have the type which
`repl-types` gives it. Nothing of a record is an error here.

Event Hubs shows events of AMQP senders to Kafka clients with application properties in AMQP encoding, without a mark,
and most other properties as text under their AMQP names.

Sources: Microsoft Learn, "Exchange events between consumers and producers that use different protocols";
azure-event-hubs-for-kafka 56 and 185.
"""

import base64
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from shared.amqp import sections
from shared.amqp import values as amqp
from shared.amqp.codec import decode_all, encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections
from shared.amqp.values import NULL, Malformed, Value
from shared.ends.kafka.record import (
    AMQP_MARK,
    ANNOTATION,
    BODY,
    CLOUD_EVENT,
    CLOUD_EVENT_PREFIX,
    CLOUD_EVENTS,
    ENCODED,
    FOOTER,
    HEADER_FIELDS,
    PROPERTY,
    PROPERTY_FIELDS,
    TYPES,
    Header,
    HeaderForm,
    is_reserved,
)
from shared.message.arrival import Arrival, Origin
from shared.message.kafka_key import partition_key_of
from shared.message.mapping import BASE64, ENCODING
from shared.message.message import SERVICE_ASSIGNED, Message

_PARTITION_KEY = "x-opt-partition-key"
_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION = (b"\x00\x53" + bytes([code]) for code in (0x70, 0x72, 0x73, 0x74))
_VALUE = b"\x00\x53\x77"
_NULL = b"\x40"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_10000 = 253_402_300_800_000
_OWN = frozenset((TYPES, AMQP_MARK, BODY, CLOUD_EVENT_PREFIX))
_FIELDS = {
    name: (place, index, expected)
    for place, fields in ((0, HEADER_FIELDS), (1, PROPERTY_FIELDS))
    for index, (name, expected) in enumerate(fields)
}
# The properties of an event that its Kafka clients get under their AMQP names.
_OF_EVENTS = {
    "message-id": "amqp-message-id",
    "user-id": "amqp-user-id",
    "to": "amqp-to",
    "reply-to": "amqp-reply-to",
    "content-type": "content-type",
    "content-encoding": "amqp-content-encoding",
    "creation-time": "amqp-creation-time",
}
_SERVICE = "x-opt-"
# What AMQP allows in a message id and a correlation id.
_ID_TYPES = frozenset(("string", "ulong", "uuid", "binary"))
_IDS = frozenset(("amqp-message-id", "amqp-correlation-id"))


def _timestamp(text: str) -> Value:
    return amqp.timestamp((datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1))


def _float(text: str) -> Value:
    value = amqp.float32(float(text))
    encode(value)  # a ValueError for a number beyond 32 bits
    return value


_PARSERS: Mapping[str, Callable[[str], Value]] = {
    "string": amqp.string,
    "symbol": amqp.symbol,
    "char": amqp.char,
    "boolean": lambda text: amqp.boolean({"true": True, "false": False}[text]),
    "float": _float,
    "double": lambda text: amqp.double(float(text)),
    "uuid": lambda text: amqp.uuid(uuid.UUID(text)),
    "timestamp": _timestamp,
    "ubyte": lambda text: amqp.ubyte(int(text)),
    "ushort": lambda text: amqp.ushort(int(text)),
    "uint": lambda text: amqp.uint(int(text)),
    "ulong": lambda text: amqp.ulong(int(text)),
    "byte": lambda text: amqp.byte(int(text)),
    "short": lambda text: amqp.short(int(text)),
    "int": lambda text: amqp.int_(int(text)),
    "long": lambda text: amqp.long(int(text)),
}


class TakenRecord(NamedTuple):
    """What was received from Kafka."""

    partition: int
    offset: int
    time: int | None
    """In milliseconds since 1970 UTC."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] | None
    """None if they cannot be read: the name of one is not UTF-8."""


def message_of(record: TakenRecord, site: str, topic: str, *, is_event_hub: bool = False) -> Message:
    """Return the message in a record of a *topic*, which may be an event hub."""
    headers = record.headers or ()
    if is_event_hub:
        headers = _headers_of_event(headers)
    found = _Found(headers)
    if record.key is not None:
        found.take_key(record.key)
    time = record.time if record.time is not None and 0 <= record.time < _YEAR_10000 else None
    origin = Origin(site, topic, str(record.partition))
    body = _body(record.value, next((content for name, content in headers if name == BODY), None))
    return Message(found.sections(body), Arrival(origin, record.offset, str(record.offset), time))


class _Found:
    """The parts of a message in the headers of a record."""

    def __init__(self, headers: Sequence[Header]) -> None:
        self._is_encoded = any(name == AMQP_MARK for name, _ in headers)
        self._form: HeaderForm = "amqp" if self._is_encoded else "text"
        self._types = _types(headers)
        self._events = _events(headers)
        self._fields: tuple[dict[int, Value], dict[int, Value]] = ({}, {})
        self._annotations: dict[str, Value] = {}
        self._properties: dict[str, Value] = {}
        self._numbers: dict[str, int] = {}
        """By name, the last number that was given to a property of it."""
        self._footer = b""
        for name, content in headers:
            if name not in _OWN and not self._is_placed(name, content):
                self._add_foreign(name, content)

    def take_key(self, key: bytes) -> None:
        """Let the partition be that of the *key*, also if a header has another: a program may have changed the key."""
        header = self._annotations.get(_PARTITION_KEY)
        if header is not None and header.payload == key.decode(errors="replace"):
            return
        self._annotations[_PARTITION_KEY], kept = partition_key_of(key)
        for name, value in kept.items():
            if self._properties.get(name) != value:
                self._add_property(name, value)

    def sections(self, body: bytes) -> Sections:
        """Return the message with this *body*."""
        header, properties = (
            [encode(field[index]) if index in field else _NULL for index in range(max(field) + 1)] if field else []
            for field in self._fields
        )
        return Sections(
            header=join_list(_HEADER, header) if header else b"",
            message_annotations=_map(_ANNOTATIONS, self._annotations, amqp.symbol),
            properties=join_list(_PROPERTIES, properties) if properties else b"",
            application_properties=_map(_APPLICATION, self._properties, amqp.string),
            body=body,
            footer=self._footer,
        )

    def _is_placed(self, name: str, content: bytes | None) -> bool:
        """Put a header where it belongs; return False for one that Busway cannot have written."""
        if name == FOOTER:
            is_footer = not self._footer and content is not None and _is_footer(content)
            self._footer = content or b"" if is_footer else self._footer
            return is_footer
        place, index, expected = _FIELDS.get(name, (None, 0, "string"))
        value = self._value(name, content, expected)
        if value is None:
            return False
        if place is not None:
            may_be = _ID_TYPES if name in _IDS else {expected}
            return value.kind in may_be and self._fields[place].setdefault(index, value) is value
        if not name.startswith(ANNOTATION):
            self._add_property(self._property_name(name), value)
            return True
        annotation = name.removeprefix(ANNOTATION)
        is_key = annotation == _PARTITION_KEY
        if not annotation.isascii() or annotation in SERVICE_ASSIGNED or (is_key and value.kind != "string"):
            return False
        return self._annotations.setdefault(annotation, value) is value

    def _property_name(self, header: str) -> str:
        if header.startswith(PROPERTY) and is_reserved(header, self._form):
            return header.removeprefix(PROPERTY)
        if header.startswith(CLOUD_EVENT) and not self._is_encoded:
            return f"{self._events}{header.removeprefix(CLOUD_EVENT)}"
        return header

    def _value(self, name: str, content: bytes | None, expected: str) -> Value | None:
        """Return the value of a header, None if it is not what it is said to be."""
        kind = ENCODED if self._is_encoded else self._types.get(name, expected)
        if content is None:
            return NULL if kind in {"null", expected} else None
        try:
            if kind == ENCODED:
                return decode_all(content)
            return amqp.binary(content) if kind == "binary" else _PARSERS[kind](content.decode())
        except (ValueError, KeyError, TypeError, OverflowError, Malformed):
            return None

    def _add_foreign(self, name: str, content: bytes | None) -> None:
        try:
            self._add_property(name, NULL if content is None else amqp.string(content.decode()))
        except UnicodeDecodeError:
            free = self._add_property(name, amqp.string(base64.b64encode(content or b"").decode()))
            self._add_property(f"{ENCODING}{free}", amqp.string(BASE64))

    def _add_property(self, name: str, value: Value) -> str:
        """Add a property; a name that is there already gets a number. Return its name."""
        free, number = name, self._numbers.get(name, 1)
        while free in self._properties:
            number += 1
            free = f"{name}-{number}"
        # A record of 1 MB has room for 200 000 headers of one name: each search goes on where the last one ended.
        self._numbers[name] = number
        self._properties[free] = value
        return free


def _types(headers: Sequence[Header]) -> dict[str, str]:
    try:
        found = json.loads(next((content for name, content in headers if name == TYPES), None) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return {name: kind for name, kind in found.items() if isinstance(kind, str)} if isinstance(found, dict) else {}


def _events(headers: Sequence[Header]) -> str:
    """Return how the properties of a CloudEvent's attributes start."""
    given = next((content for name, content in headers if name == CLOUD_EVENT_PREFIX), None)
    return next((cloud_event for cloud_event in CLOUD_EVENTS if cloud_event.encode() == given), CLOUD_EVENTS[0])


def _headers_of_event(headers: Sequence[Header]) -> Sequence[Header]:
    """Return the headers that Event Hubs makes of an AMQP sender's event as Busway writes them; others unchanged."""
    if any(name in {AMQP_MARK, TYPES} for name, _ in headers):
        return headers
    named = {name: content for name, content in headers if name in _OF_EVENTS or name.startswith(_SERVICE)}
    others = [(name, content) for name, content in headers if name not in named]
    # Text of a Kafka producer may be an AMQP encoding by chance, but not when one header of a record cannot be text.
    is_amqp = bool(others) and all(_is_encoded(content) for _, content in others)
    if others and not (is_amqp and any(not _is_text(content) for _, content in others)):
        return headers
    restored: list[Header] = [(AMQP_MARK, b""), *others]
    for name, content in named.items():
        if content is not None and name not in SERVICE_ASSIGNED:
            place = _OF_EVENTS.get(name) or f"{ANNOTATION}{name}"
            encoded = encode(_field_of_event(name, content.decode())) if _is_text(content) else content
            restored.append((place, encoded))
    return restored


def _field_of_event(name: str, text: str) -> Value:
    if name == "user-id":
        return amqp.binary(text.encode())
    if name in {"content-type", "content-encoding"} and text.isascii():
        return amqp.symbol(text)
    if name == "creation-time":
        try:
            return amqp.timestamp(int(text)) if text.isdecimal() else _timestamp(text)
        except (ValueError, TypeError, OverflowError):
            pass  # `_Found` makes a property of it
    return amqp.string(text)


def _is_encoded(content: bytes | None) -> bool:
    try:
        return content is not None and decode_all(content) is not None
    except (ValueError, OverflowError, Malformed):
        return False


def _is_text(content: bytes | None) -> bool:
    try:
        return content is not None and content.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _body(value: bytes | None, kind: bytes | None) -> bytes:
    if value is None:
        return _VALUE + _NULL
    if kind == ENCODED.encode() and _is_body(value):
        return value
    if kind in {b"string", b"binary"}:
        try:
            return _VALUE + encode(amqp.string(value.decode()) if kind == b"string" else amqp.binary(value))
        except UnicodeDecodeError:
            pass
    return sections.data(value)


def _is_footer(content: bytes) -> bool:
    try:
        decode_all(content)
        return sections.split(content).footer == content
    except Malformed:
        return False


def _is_body(content: bytes) -> bool:
    try:
        sections.body_parts(content)
        return bool(content) and sections.split(content).body == content
    except Malformed:
        return False


def _map(prefix: bytes, values: Mapping[str, Value], key: Callable[[str], Value]) -> bytes:
    if not values:
        return b""
    return join_map(prefix, [encode(key(name)) + encode(value) for name, value in values.items()], len(values))
