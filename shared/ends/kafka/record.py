"""
A message as a Kafka record: its body is the value, its partition key or session id the key, all else are headers.

Kafka has bytes where AMQP has types. In the form `text` a header is text that any reader understands, and the header
`repl-types` names the types that the text does not show. In the form `amqp` a header is the value's AMQP encoding,
which is what Kafka clients of Event Hubs get. docs/kafka.md has both as a table.

Source: CloudEvents 1.0, Kafka protocol binding; Microsoft Learn, "Exchange events between consumers and producers that
use different protocols".
"""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple

from shared.amqp import map_section, sections
from shared.amqp.codec import decode, encode
from shared.amqp.scan import extent_bytes
from shared.amqp.shapes import Part, Shapes
from shared.amqp.values import Value, double, float32
from shared.errors import MessageRejected
from shared.message.kafka_key import kafka_key_of
from shared.protocols import Outgoing

type HeaderForm = Literal["text", "amqp"]
type Header = tuple[str, bytes | None]
type _Property = tuple[str, int, int, str | None]
"""A header, where its bytes start and stop, and its type; without a type they are a value to decode."""

TYPES = "repl-types"
BODY = "amqp-body"
FOOTER = "amqp-footer"
CLOUD_EVENT = "ce_"
"""How the header of a CloudEvent's attribute starts."""
CLOUD_EVENTS = ("cloudEvents:", "cloudEvents_", CLOUD_EVENT)
"""How the properties of such attributes may start; a reader takes the first unless a header has another."""
CLOUD_EVENT_PREFIX = "amqp-cloud-event-prefix"
"""The header that has how the properties of such attributes started."""
ANNOTATION = "amqp-"
PROPERTY = "property:"
"""How the header of a property starts if a header of its name means something else."""
AMQP_MARK = "AMQPheaders"
"""The header by which a reader recognizes values in AMQP encoding; its value means nothing."""
ENCODED = "amqp"
"""The type of a value whose header or body is its AMQP encoding."""

_RESERVED: Mapping[HeaderForm, tuple[str, ...]] = {"text": (ANNOTATION, *CLOUD_EVENTS), "amqp": (ANNOTATION,)}
_NULL = b"\x40"
_ZERO = b"\x54\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# By format code: where the bytes of a value start, if they are those of its header, and its type.
_BYTES = {
    0xA0: (2, "binary"),
    0xB0: (5, "binary"),
    0xA1: (2, "string"),
    0xB1: (5, "string"),
    0xA3: (2, "symbol"),
    0xB3: (5, "symbol"),
}
_FEW_BYTES = 20
_NAN = frozenset((encode(double(math.nan)), encode(float32(math.nan))))
_INTEGERS = frozenset(("ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long"))
# The names of the fields of two sections, and the types that AMQP gives to them.
HEADER_FIELDS = (("amqp-durable", "boolean"), ("amqp-priority", "ubyte"), ("amqp-ttl", "uint"))
PROPERTY_FIELDS = (
    ("amqp-message-id", "string"),
    ("amqp-user-id", "binary"),
    ("amqp-to", "string"),
    ("amqp-subject", "string"),
    ("amqp-reply-to", "string"),
    ("amqp-correlation-id", "string"),
    ("content-type", "symbol"),
    ("amqp-content-encoding", "symbol"),
    ("amqp-absolute-expiry-time", "timestamp"),
    ("amqp-creation-time", "timestamp"),
    ("amqp-group-id", "string"),
    ("amqp-group-sequence", "uint"),
    ("amqp-reply-to-group-id", "string"),
)
_RESERVED_NAMES = frozenset((TYPES, AMQP_MARK, "content-type"))


class Record(NamedTuple):
    """What is sent to Kafka."""

    key: bytes | None
    value: bytes | None
    """None for a body that is the AMQP value null: a tombstone, which deletes the key from a compacted topic."""
    headers: list[Header]


def key_of(message: Outgoing) -> str | None:
    """Return the key of a message: its partition key, or else its session id."""
    return message.partition_key or message.session_id


def record_of(message: Outgoing, form: HeaderForm) -> Record:
    """Return the record of a message; raises MessageRejected for one that Kafka cannot hold."""
    raw = sections.split(message.content)
    value, body_kind = _value(raw.body)
    headers, types = _text_headers(raw) if form == "text" else (_amqp_headers(raw), ())
    if raw.footer:
        headers.append((FOOTER, raw.footer))
    if body_kind is not None:
        headers.append((BODY, body_kind.encode()))
    if types:
        headers.append((TYPES, _types(tuple(types))))
    return Record(kafka_key_of(key_of(message), raw.application_properties), value, headers)


def _text_headers(raw: sections.Sections) -> tuple[list[Header], list[tuple[str, str]]]:
    """Return the headers of the form `text`, and the types that are not the expected ones."""
    headers: list[Header] = []
    types: list[tuple[str, str]] = []
    section = raw.application_properties
    if section:
        for header, start, stop, kind in _PLANS.find(section) or _properties_of(section):
            if kind is None:
                _append(headers, types, header, "string", section[start:stop])
                continue
            headers.append((header, section[start:stop]))
            if kind != "string":
                types.append((header, kind))
    section = raw.message_annotations
    if section:
        for name, _, start, stop in map_section.entries(section):
            if name is not None:
                _append(headers, types, _annotation_header(name), "string", section[start:stop])
    if raw.header:
        known, unusual = _header_section(raw.header)
        headers += known
        types += unusual
    for (header, expected), field in zip(PROPERTY_FIELDS, sections.fields_of(raw.properties), strict=False):
        if field != _NULL:
            _append(headers, types, header, expected, field)
    return headers, types


@lru_cache(maxsize=256)
def _header_section(section: bytes) -> tuple[list[Header], list[tuple[str, str]]]:
    """Return the headers of an encoded header section; cached, because most messages share a few of them."""
    headers: list[Header] = []
    types: list[tuple[str, str]] = []
    for (header, expected), field in zip(HEADER_FIELDS, sections.fields_of(section), strict=False):
        if field != _NULL:
            _append(headers, types, header, expected, field)
    return headers, types


def is_reserved(name: str, form: HeaderForm) -> bool:
    """Return whether a header of this name is not the property of this name; `property:` before it changes nothing."""
    own = name.rpartition(PROPERTY)[2]
    return own in _RESERVED_NAMES or own.startswith(_RESERVED[form])


def _properties_of(section: bytes) -> list[_Property]:
    """Return the properties of an encoded section."""
    found: list[_Property] = []
    events: str | None = None
    for name, entry, start, stop in map_section.entries(section):
        prefix = _event_prefix(name)
        if prefix is not None and events is None:
            events = prefix
            if prefix != CLOUD_EVENTS[0]:
                at = section.index(prefix.encode(), entry)
                found.append((CLOUD_EVENT_PREFIX, at, at + len(prefix), "string"))
        offset, kind = _BYTES.get(section[start], (0, None))
        header = _event_header(name, prefix) if prefix and prefix == events else _property_header(name, "text")
        found.append((header, start + offset, stop, kind))
    return found


def _plan_of(section: bytes) -> tuple[list[Part], list[_Property]] | None:
    """Return the parts of a section and its properties, None if it has no shape."""
    parts: list[Part] = []
    for start, _, value_start, stop in map_section.walk(section):
        extent = extent_bytes(section[value_start])
        if extent is None:
            return None
        parts.append((start, value_start + extent, stop))
    return parts, _properties_of(section)


_PLANS = Shapes(_plan_of)


def _append(headers: list[Header], types: list[tuple[str, str]], header: str, expected: str, encoded: bytes) -> None:
    content, kind = header_of(encoded)
    headers.append((header, content))
    if kind != expected:
        types.append((header, kind))


def _amqp_headers(raw: sections.Sections) -> list[Header]:
    """Return the headers of the form `amqp`."""
    headers: list[Header] = []
    for name, _, start, stop in map_section.entries(raw.application_properties):
        headers.append((_property_header(name, "amqp"), raw.application_properties[start:stop]))
    for name, _, start, stop in map_section.entries(raw.message_annotations):
        if name is not None:
            headers.append((_annotation_header(name), raw.message_annotations[start:stop]))
    for names, section in ((HEADER_FIELDS, raw.header), (PROPERTY_FIELDS, raw.properties)):
        fields = zip(names, sections.fields_of(section), strict=False)
        headers += [(header, field) for (header, _), field in fields if field != _NULL]
    return [*headers, (AMQP_MARK, _ZERO)]


def header_of(encoded: bytes) -> tuple[bytes | None, str]:
    """Return the header of an encoded AMQP value in the form `text`, and the name of its type there."""
    known = _BYTES.get(encoded[0])
    if known is not None:
        return encoded[known[0] :], known[1]
    return _few_bytes(encoded) if len(encoded) <= _FEW_BYTES else _decoded(encoded)


@lru_cache(maxsize=1024)
def _few_bytes(encoded: bytes) -> tuple[bytes | None, str]:
    return _decoded(encoded)


def _decoded(encoded: bytes) -> tuple[bytes | None, str]:
    value, _ = decode(encoded)
    kind, payload = value.kind, value.payload
    if isinstance(payload, str):
        # A char may be half of a pair of surrogates, which UTF-8 does not have.
        return (encoded, ENCODED) if "\ud800" <= payload <= "\udfff" else (payload.encode(), kind)
    if kind in _INTEGERS or kind == "uuid":
        return str(payload).encode(), kind
    if kind == "boolean":
        return (b"true" if payload else b"false"), kind
    if kind == "null":
        return None, kind
    if isinstance(payload, float):
        # The text has one NaN; there are many, and the bits of another one may mean something.
        is_other = math.isnan(payload) and encoded not in _NAN
        return (encoded, ENCODED) if is_other else (_number(payload).encode(), kind)
    time = _time(value)
    return (encoded, ENCODED) if time is None else (time.encode(), kind)


def _value(body: bytes) -> tuple[bytes | None, str | None]:
    """Return the value of a record, and its type if it is not that of data sections."""
    only = sections.only_data(body)
    if only is not None:
        return only, None
    parts = sections.body_parts(body)
    if all(number == sections.DATA for number, _ in parts):
        return b"".join(value.payload for _, value in parts if isinstance(value.payload, bytes)), None
    number, value = parts[0]
    if number == sections.VALUE and value.kind in {"string", "binary", "null"}:
        content, kind = header_of(body[sections.descriptor(body, 0)[1] :])
        return content, None if content is None else kind
    return body, ENCODED


@lru_cache(maxsize=256)
def _types(types: tuple[tuple[str, str], ...]) -> bytes:
    return json.dumps(dict(types), ensure_ascii=False, separators=(",", ":")).encode()


def _checked(name: str | None) -> str:
    """Return the name of a property; raises MessageRejected for one that is not a name in Kafka."""
    if name is None:
        raise MessageRejected("NotRepresentable", "the name of a property is not text, which Kafka needs")
    if "\0" in name:
        raise MessageRejected("NotRepresentable", "the name of a property has a zero character, which Kafka ends at")
    return name


@lru_cache(maxsize=1024)
def _property_header(name: str | None, form: HeaderForm) -> str:
    """Return the header of a property that is no attribute of a CloudEvent."""
    header = _checked(name)
    return f"{PROPERTY}{header}" if is_reserved(header, form) else header


@lru_cache(maxsize=1024)
def _event_prefix(name: str | None) -> str | None:
    """Return how the name of a property starts if it may be an attribute of a CloudEvent."""
    return next((cloud_event for cloud_event in CLOUD_EVENTS if name and name.startswith(cloud_event)), None)


@lru_cache(maxsize=1024)
def _event_header(name: str | None, prefix: str) -> str:
    return f"{CLOUD_EVENT}{_checked(name).removeprefix(prefix)}"


@lru_cache(maxsize=256)
def _annotation_header(name: str) -> str:
    return f"{ANNOTATION}{_checked(name)}"


def _number(payload: float) -> str:
    # As Java, JavaScript and .NET write and read them.
    if math.isnan(payload):
        return "NaN"
    if math.isinf(payload):
        return "Infinity" if payload > 0 else "-Infinity"
    return repr(payload)


def _time(value: Value) -> str | None:
    """Return a timestamp as RFC 3339 has it, None for another type or a year that is not between 1 and 9999."""
    if value.kind != "timestamp" or not isinstance(value.payload, int):
        return None
    try:
        time = _EPOCH + timedelta(milliseconds=value.payload)
    except OverflowError:
        return None
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z".rjust(24, "0")
