"""
Envelopes: one body with several messages, for the editors batch and split.

1. A JSON array and JSON lines have JSON bodies with their original text; in JSON lines, line ends become spaces.
2. An Avro container has bodies of any kind, and the properties of their messages: readable for other software, and as
   encoded sections, from which split restores the original messages.

Source: RFC 8259; jsonlines.org; Apache Avro specification 1.12, object container files.
"""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from shared.amqp import sections
from shared.amqp.codec import plain
from shared.amqp.values import NULL, Malformed, Value, binary, boolean, double, long, string
from shared.codecs.avro import AvroSchema
from shared.codecs.avro_container import open_container, read_container, single_values, write_container
from shared.codecs.avro_types import NOT_AVRO
from shared.codecs.json import read
from shared.codecs.json_spans import entries, first_value
from shared.editors.content.body import content_of
from shared.errors import MessageRejected
from shared.message.message import Message

type Format = Literal["json-array", "json-lines", "avro"]

_NOT_AN_ENVELOPE = "NotAnEnvelope"
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")

_FIELDS: dict[str, Any] = {
    "type": "record",
    "name": "Message",
    "namespace": "busway",
    "fields": [
        {"name": "message_id", "type": ["null", "string"]},
        {"name": "sequence_number", "type": ["null", "long"]},
        {"name": "enqueued_time", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "subject", "type": ["null", "string"]},
        {"name": "content_type", "type": ["null", "string"]},
        {
            "name": "properties",
            "doc": "Application properties; of a type that is not here, as text.",
            "type": {"type": "map", "values": ["null", "boolean", "long", "double", "string", "bytes"]},
        },
        {"name": "body", "type": "bytes"},
        {
            "name": "amqp",
            "doc": "The properties and application-properties sections as they were encoded (AMQP 1.0).",
            "type": ["null", "bytes"],
            "default": None,
        },
    ],
}
_SCHEMA = AvroSchema(json.dumps(_FIELDS).encode())
# Bytes of a container's header with the schema, and of an entry in addition to its body and twice its sections.
_AVRO_HEADER, _AVRO_ENTRY = 1500, 64
_LONG = 1 << 63
# In milliseconds since 1970: the years 1 to 9999, which readers of Avro have.
_CALENDAR = range(-62_135_596_800_000, 253_402_300_800_000)
_OF_CAPTURE = "Body"
_BODIES = ("body", _OF_CAPTURE)
_PLAIN_TYPES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


class Entry(NamedTuple):
    """A message's part of an envelope, and its size there in bytes."""

    message: Message
    content: bytes
    size: int


class Taken(NamedTuple):
    """One message in an envelope: its body, and its properties if the envelope has them."""

    body: bytes
    properties: sections.Sections | None = None
    """The properties and application-properties sections."""
    named: Mapping[str, Value] = MappingProxyType({})
    """Application properties that are added to those of the envelope: those of an event that Capture wrote."""


class Envelope(Protocol):
    """An envelope format."""

    media_type: str
    overhead: int
    """Largest size of an envelope without entries, in bytes."""

    def entry(self, message: Message) -> Entry:
        """Return the part of *message*; raises MessageRejected if its body does not fit the format."""
        ...

    def joined(self, entries: Sequence[Entry]) -> bytes:
        """Return the body with *entries* in their order; the same entries always give the same bytes."""
        ...

    def taken(self, content: bytes, limit: int) -> list[Taken]:
        """Return the messages in *content*; raises MessageRejected for other content, or more than *limit* messages."""
        ...


class JsonArray:
    """A JSON array of bodies."""

    media_type = "application/json"
    overhead = 2

    def entry(self, message: Message) -> Entry:
        """Return the body of *message*, which must be JSON."""
        content = content_of(message)
        read(content)
        content = content.strip()
        return Entry(message, content, len(content) + 1)

    def joined(self, entries: Sequence[Entry]) -> bytes:
        """Return the array."""
        return b"[" + b",".join(entry.content for entry in entries) + b"]"

    def taken(self, content: bytes, limit: int) -> list[Taken]:
        """Return the elements as they are written."""
        value = read(content)
        if not isinstance(value, list):
            raise MessageRejected(_NOT_AN_ENVELOPE, "body is JSON, but not an array")
        _check_count(len(value), limit)
        text = content.decode()
        return [Taken(text[start:stop].encode()) for _, start, stop in entries(text, first_value(text))]


class JsonLines:
    """A JSON text in each line."""

    media_type = "application/jsonl"
    overhead = 0

    def entry(self, message: Message) -> Entry:
        """Return the body of *message* in one line; JSON has line ends only between tokens."""
        content = content_of(message)
        read(content)
        content = content.translate(_LINE_ENDS).strip()
        return Entry(message, content, len(content) + 1)

    def joined(self, entries: Sequence[Entry]) -> bytes:
        """Return the lines, each with its end."""
        return b"".join(entry.content + b"\n" for entry in entries)

    def taken(self, content: bytes, limit: int) -> list[Taken]:
        """Return the lines that are not empty."""
        lines = [(number, line.strip()) for number, line in enumerate(content.split(b"\n"), 1)]
        lines = [(number, line) for number, line in lines if line]
        _check_count(len(lines), limit)
        for number, line in lines:
            try:
                read(line)
            except MessageRejected as error:
                raise MessageRejected(error.reason, f"line {number} of the envelope: {error.description}") from error
        return [Taken(line) for _, line in lines]


class AvroContainer:
    """An Avro object container file of messages."""

    media_type = "application/avro"
    overhead = _AVRO_HEADER

    def entry(self, message: Message) -> Entry:
        """Return the body of *message*."""
        content = content_of(message)
        raw = message.sections
        size = len(content) + 2 * (len(raw.properties) + len(raw.application_properties)) + _AVRO_ENTRY
        return Entry(message, content, size)

    def joined(self, entries: Sequence[Entry]) -> bytes:
        """Return the container."""
        return write_container(_SCHEMA, list(map(_record, entries)))

    def taken(self, content: bytes, limit: int) -> list[Taken]:
        """Return the records; of a schema without a body, a container with each value, as `transcode` reads it."""
        try:
            name = _body_field(open_container(content)[0].parsed)
            if name is None:
                return [Taken(value) for value in single_values(content, limit)]
            records = read_container(content, most=limit)
        except MessageRejected as error:
            if error.reason != NOT_AVRO:
                raise
            raise MessageRejected(_NOT_AN_ENVELOPE, error.description) from error
        return [_taken(record, name, number) for number, record in enumerate(records)]


def envelope(name: Format) -> Envelope:
    """Return the envelope of this name."""
    match name:
        case "json-array":
            return JsonArray()
        case "json-lines":
            return JsonLines()
        case "avro":
            return AvroContainer()


def _check_count(count: int, limit: int) -> None:
    if count > limit:
        raise MessageRejected("EnvelopeTooLarge", f"envelope holds more than {limit} messages")


def _record(entry: Entry) -> dict[str, object]:
    message, raw = entry.message, entry.message.sections
    identity, enqueued = message.message_id, message.arrival.enqueued_time
    return {
        "message_id": None if identity is None else str(identity.payload),
        "sequence_number": message.arrival.sequence_number,
        "enqueued_time": enqueued if enqueued in _CALENDAR else None,
        "subject": message.subject,
        "content_type": message.content_type,
        "properties": {name: _readable(plain(value)) for name, value in message.application_properties()},
        "body": entry.content,
        "amqp": raw.properties + raw.application_properties,
    }


def _readable(value: object) -> object:
    match value:
        case None | bool() | float() | bytes() | str():
            return value
        case int() if -_LONG <= value < _LONG:
            return value
        case _:
            return str(value)


def _body_field(schema: Any) -> str | None:  # noqa: ANN401 - JSON
    """
    Return the name of the field with a record's body, None for a schema of something else.

    The schema is the sender's: with nested arrays or records few bytes could become many.
    """
    fields = schema.get("fields") if isinstance(schema, dict) and schema.get("type") == "record" else None
    if fields is None or not all(_is_flat(field["type"]) for field in fields):
        return None
    return next((str(field["name"]) for field in fields if field["name"] in _BODIES), None)


def _is_flat(schema: Any) -> bool:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        return all(map(_is_flat, schema))
    if isinstance(schema, dict):
        return _is_flat(schema["values"] if schema["type"] == "map" else schema["type"])
    return schema in _PLAIN_TYPES


def _typed(value: object) -> Value:
    """Return a property as Capture has its value: a whole number or a fraction, whatever type it had."""
    match value:
        case bool():
            return boolean(value)
        case int():
            return long(value)
        case float():
            return double(value)
        case bytes():
            return binary(value)
        case str():
            return string(value)
    return NULL


def _taken(record: Any, name: str, number: int) -> Taken:  # noqa: ANN401 - any record
    body, properties = record[name], record.get("Properties")
    if name == _OF_CAPTURE and body is None:
        body = b""
    if not isinstance(body, bytes):
        raise MessageRejected(_NOT_AN_ENVELOPE, f"record {number} of the envelope: {name} is not bytes")
    if name == _OF_CAPTURE:
        named = {key: _typed(value) for key, value in properties.items()} if isinstance(properties, dict) else {}
        # Stamps of an earlier copy are not those of this message.
        return Taken(body, named={key: value for key, value in named.items() if not key.startswith("repl-")})
    encoded = record.get("amqp")
    if encoded is None:
        return Taken(body)
    try:
        raw = sections.split(encoded if isinstance(encoded, bytes) else b"\x40")
    except Malformed as error:
        problem = f"record {number} of the envelope: its sections cannot be read, {error.description}"
        raise MessageRejected(_NOT_AN_ENVELOPE, problem) from error
    if raw.header or raw.delivery_annotations or raw.message_annotations or raw.body or raw.footer:
        problem = f"record {number} of the envelope: has sections of other kinds than its properties"
        raise MessageRejected(_NOT_AN_ENVELOPE, problem)
    return Taken(body, raw)
