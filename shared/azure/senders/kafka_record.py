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
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from shared.amqp import map_section, sections
from shared.amqp.codec import decode
from shared.amqp.values import Value
from shared.errors import MessageRejected
from shared.protocols import Outgoing

type HeaderForm = Literal["text", "amqp"]

TYPES = "repl-types"
BODY = "amqp-body"
AMQP_MARK = "AMQPheaders"
"""The header by which a reader recognizes values in AMQP encoding; its value means nothing."""
ENCODED = "amqp"
"""The type of a value whose header or body is its AMQP encoding."""

_CLOUD_EVENTS = ("cloudEvents_", "cloudEvents:")
_NULL = b"\x40"
_ZERO = b"\x54\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = frozenset(("string", "symbol", "char"))
_INTEGERS = frozenset(("ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long"))
# The names of the fields of two sections, and the types that AMQP gives to them.
_HEADER = (("amqp-durable", "boolean"), ("amqp-priority", "ubyte"), ("amqp-ttl", "uint"))
_PROPERTIES = (
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


class Record(NamedTuple):
    """What is sent to Kafka."""

    key: bytes | None
    value: bytes | None
    """None for a body that is the AMQP value null: a tombstone, which deletes the key from a compacted topic."""
    headers: list[tuple[str, bytes | None]]

    @property
    def fingerprint(self) -> int:
        """A number by which this record is recognized when it is sent again."""
        return hash((self.key, self.value, tuple(self.headers)))

    @property
    def size(self) -> int:
        """The bytes of its parts, without the few that Kafka adds."""
        named = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + named


def record_of(message: Outgoing, form: HeaderForm) -> Record:
    """Return the record of a message; raises MessageRejected for one that Kafka cannot hold."""
    raw = sections.split(message.content)
    value, body_kind = _value(raw.body)
    headers: list[tuple[str, bytes | None]] = []
    types: dict[str, str] = {}
    for name, expected, encoded in _fields(raw):
        if "\0" in name:
            raise MessageRejected(
                "NotRepresentable", "the name of a property has a zero character, which Kafka ends at"
            )
        if form == "amqp":
            headers.append((name, encoded))
            continue
        header = _cloud_event_header(name)
        content, kind = header_of(encoded)
        headers.append((header, content))
        if kind != expected:
            types[header] = kind
    if raw.footer:
        headers.append(("amqp-footer", raw.footer))
    if body_kind is not None:
        headers.append((BODY, body_kind.encode()))
    if form == "amqp":
        headers.append((AMQP_MARK, _ZERO))
    elif types:
        headers.append((TYPES, json.dumps(types, ensure_ascii=False, separators=(",", ":")).encode()))
    key = message.partition_key or message.session_id
    return Record(key.encode() if key else None, value, headers)


def header_of(encoded: bytes) -> tuple[bytes | None, str]:
    """Return the header of an encoded AMQP value in the form `text`, and the name of its type there."""
    value, _ = decode(encoded)
    kind, payload = value.kind, value.payload
    if isinstance(payload, str) and kind in _TEXTS:
        # A char may be half of a pair of surrogates, which UTF-8 does not have.
        return (encoded, ENCODED) if "\ud800" <= payload <= "\udfff" else (payload.encode(), kind)
    if kind in _INTEGERS or kind == "uuid":
        return str(payload).encode(), kind
    if kind == "boolean":
        return (b"true" if payload else b"false"), kind
    if kind == "null":
        return None, kind
    if isinstance(payload, bytes) and kind == "binary":
        return payload, kind
    if isinstance(payload, float):
        return _number(payload).encode(), kind
    time = _time(value)
    return (encoded, ENCODED) if time is None else (time.encode(), kind)


def _fields(raw: sections.Sections) -> Iterator[tuple[str, str, bytes]]:
    """Yield the name, the expected type and the encoded value of everything that becomes a header."""
    for name, _, start, stop in map_section.entries(raw.application_properties):
        if name is None:
            raise MessageRejected("NotRepresentable", "the name of a property is not text, which Kafka needs")
        yield name, "string", raw.application_properties[start:stop]
    for name, _, start, stop in map_section.entries(raw.message_annotations):
        if name is not None:
            yield f"amqp-{name}", "string", raw.message_annotations[start:stop]
    for names, section in ((_HEADER, raw.header), (_PROPERTIES, raw.properties)):
        for (name, expected), field in zip(names, sections.fields_of(section), strict=False):
            if field != _NULL:
                yield name, expected, field


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


def _cloud_event_header(name: str) -> str:
    for prefix in _CLOUD_EVENTS:
        if name.startswith(prefix):
            return f"ce_{name.removeprefix(prefix)}"
    return name


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
