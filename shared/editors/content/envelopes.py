"""
Envelopes: one body that holds several messages, for the editors that put them in and take them out.

1. A JSON array and JSON lines hold bodies that are JSON, as they were written; in lines, line feeds have become spaces.
2. An Avro container holds bodies of any kind and beside each what its message was: with the sections as they were
   encoded, so that what is taken out is what was put in, and readable for everybody else.

Source: RFC 8259; jsonlines.org; Apache Avro specification 1.12, object container files.
"""

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Protocol

from shared.amqp import sections
from shared.amqp.codec import plain
from shared.amqp.values import Malformed
from shared.codecs.json import read
from shared.codecs.json_spans import entries, first_value
from shared.editors.content.body import content_of
from shared.errors import MessageRejected
from shared.message.message import Message

type Format = Literal["json-array", "json-lines", "avro"]

_NOT_AN_ENVELOPE = "NotAnEnvelope"
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SCHEMA: dict[str, Any] = {
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
# A container's header with the schema, and what an entry takes beside its body and its sections twice.
_AVRO_HEADER, _AVRO_ENTRY = 1500, 64
_LONG = 1 << 63
_BODIES = ("body", "Body")  # the latter in what Event Hubs Capture writes
_PLAIN_TYPES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


class Entry(NamedTuple):
    """A message's part of an envelope, and the bytes that it takes there."""

    message: Message
    content: bytes
    size: int


class Taken(NamedTuple):
    """What an envelope held of one message; without properties it says nothing of it but its body."""

    body: bytes
    properties: sections.Sections | None = None
    """The properties and application-properties sections."""


class Envelope(Protocol):
    """One format."""

    media_type: str
    overhead: int
    """Bytes of an envelope without entries, at most."""

    def entry(self, message: Message) -> Entry:
        """Return the part of *message*; raises MessageRejected where its body cannot be put in."""
        ...

    def joined(self, entries: Sequence[Entry]) -> bytes:
        """Return the body that holds *entries* in their order, the same bytes at every call."""
        ...

    def taken(self, content: bytes, limit: int) -> list[Taken]:
        """Return what *content* holds; raises MessageRejected where it is no envelope or holds more than *limit*."""
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
        return b"[" + b",".join(each.content for each in entries) + b"]"

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
        """Return the body of *message* in one line; a JSON text has line ends in its white space only."""
        content = content_of(message)
        read(content)
        content = content.translate(_LINE_ENDS).strip()
        return Entry(message, content, len(content) + 1)

    def joined(self, entries: Sequence[Entry]) -> bytes:
        """Return the lines, each with its end."""
        return b"".join(each.content + b"\n" for each in entries)

    def taken(self, content: bytes, limit: int) -> list[Taken]:
        """Return the lines, of which empty ones are none."""
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

    def __init__(self) -> None:
        """Read the schema."""
        import fastavro  # noqa: PLC0415 - only who asks for it pays for it

        self._avro: Any = fastavro
        self._schema = fastavro.parse_schema(_SCHEMA)

    def entry(self, message: Message) -> Entry:
        """Return the body of *message*, of whatever it is."""
        content = content_of(message)
        raw = message.sections
        size = len(content) + 2 * (len(raw.properties) + len(raw.application_properties)) + _AVRO_ENTRY
        return Entry(message, content, size)

    def joined(self, entries: Sequence[Entry]) -> bytes:
        """Return the container, whose marker is made of what it holds."""
        marker = blake2b(digest_size=16)
        for each in entries:
            marker.update(each.content)
        file = io.BytesIO()
        records = [_record(each) for each in entries]
        self._avro.writer(file, self._schema, records, sync_marker=marker.digest())
        return file.getvalue()

    def taken(self, content: bytes, limit: int) -> list[Taken]:
        """Return the records, which must be of this schema or hold at least a body."""
        found: list[Taken] = []
        try:
            reader = self._avro.reader(io.BytesIO(content))
            name = _body_field(reader.writer_schema, reader.codec)
            for record in reader:
                found.append(_taken(record, name, len(found)))
                _check_count(len(found), limit)
        except MessageRejected:
            raise
        # The library raises what the bytes make it stumble over, of many kinds: none of its texts goes on.
        except Exception as error:
            raise MessageRejected(
                _NOT_AN_ENVELOPE, f"body is not an Avro container, or is damaged, after {len(found)} records"
            ) from error
        return found


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
        "enqueued_time": None if enqueued is None else _EPOCH + timedelta(milliseconds=enqueued),
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
            return ("long", value)
        case _:
            return str(value)


def _body_field(schema: Any, codec: str) -> str:  # noqa: ANN401 - JSON
    """
    Return the name of the field that holds a record's body.

    The schema is the sender's. One with arrays or records in it, or compressed blocks, could make much of little.
    """
    if codec != "null":
        raise MessageRejected(_NOT_AN_ENVELOPE, "container is compressed, expected an uncompressed one")
    fields = schema.get("fields") if isinstance(schema, dict) and schema.get("type") == "record" else None
    if fields is None or not all(_is_flat(field["type"]) for field in fields):
        raise MessageRejected(_NOT_AN_ENVELOPE, "schema of the container: expected a record of plain fields and maps")
    name = next((field["name"] for field in fields if field["name"] in _BODIES), None)
    if name is None:
        raise MessageRejected(_NOT_AN_ENVELOPE, f"schema of the container: has no field {' or '.join(_BODIES)}")
    return str(name)


def _is_flat(schema: Any) -> bool:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        return all(map(_is_flat, schema))
    if isinstance(schema, dict):
        return _is_flat(schema["values"] if schema["type"] == "map" else schema["type"])
    return schema in _PLAIN_TYPES


def _taken(record: Any, name: str, number: int) -> Taken:  # noqa: ANN401 - what a container holds
    body = record[name]
    if not isinstance(body, bytes):
        raise MessageRejected(_NOT_AN_ENVELOPE, f"record {number} of the envelope has no bytes as its {name}")
    encoded = record.get("amqp")
    if encoded is None:
        return Taken(body)
    try:
        raw = sections.split(encoded if isinstance(encoded, bytes) else b"\x40")
    except Malformed as error:
        raise MessageRejected(
            _NOT_AN_ENVELOPE, f"record {number} of the envelope: its sections cannot be read, {error.description}"
        ) from error
    if raw.header or raw.delivery_annotations or raw.message_annotations or raw.body or raw.footer:
        raise MessageRejected(
            _NOT_AN_ENVELOPE, f"record {number} of the envelope: has sections of other kinds than its properties"
        )
    return Taken(body, raw)
