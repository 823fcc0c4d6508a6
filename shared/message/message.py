"""
A message as its raw AMQP sections.

1. A section that is not edited is sent as the bytes that arrived.
2. An edit re-encodes its own section; in a map or list it moves the bytes of the neighbours without decoding them.
3. Values that the service assigned on arrival are read once into `Arrival` and are not sent.
4. A map with the same key twice is malformed: rules, editors and the target could read different values.
5. The decimals that Azure's host wrote wrong are corrected on arrival, so that rules, editors and the target get the
   bytes of the source (`shared.amqp.decimals`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import cast

from msgspec import Struct

from shared.amqp import map_section, sections
from shared.amqp.codec import decode, encode
from shared.amqp.decimals import repair
from shared.amqp.scan import join_list, join_map, text
from shared.amqp.sections import Sections
from shared.amqp.values import Malformed, Value, string, symbol, timestamp, uint
from shared.message.arrival import LOCK_END_IN_SESSIONS, Arrival, Origin, integer, text_or_none

_NULL = b"\x40"
_HEADER = b"\x00\x53\x70"
_EMPTY_HEADER = b"\x00\x53\x70\x45"
_MESSAGE_ANNOTATIONS = b"\x00\x53\x72"
_PROPERTIES = b"\x00\x53\x73"
_APPLICATION_PROPERTIES = b"\x00\x53\x74"

# Set by the service on delivery or for its own routing; a sender may not set them, or they must not act twice.
SERVICE_ASSIGNED = frozenset(
    (
        "x-opt-enqueued-time",
        "x-opt-sequence-number",
        "x-opt-offset",
        "x-opt-locked-until",
        "x-opt-lock-token",
        "x-opt-enqueue-sequence-number",
        "x-opt-message-state",
        "x-opt-partition-id",
        "x-opt-deadletter-source",
        "x-opt-scheduled-enqueue-time",
        "x-opt-via-partition-key",
    )
)

_ASSIGNED = frozenset(name.encode() for name in SERVICE_ASSIGNED)
_NUMBERS = (b"x-opt-sequence-number", b"x-opt-enqueued-time", b"x-opt-locked-until", b"x-opt-scheduled-enqueue-time")
_TEXTS = (b"x-opt-offset", b"x-opt-deadletter-source")

_MESSAGE_ID = 0
_TO = 2
_SUBJECT = 3
_REPLY_TO = 4
_CORRELATION_ID = 5
_CONTENT_TYPE = 6
_CONTENT_ENCODING = 7
_ABSOLUTE_EXPIRY_TIME = 8
_CREATION_TIME = 9
_GROUP_ID = 10
_REPLY_TO_GROUP_ID = 12

_DURABLE = 0
_TTL = 2
_SENDER_HEADER_FIELDS = 3
_LONGEST_LIFE = 2**32 - 1
_LONGEST_TTL = b"\x70\xff\xff\xff\xff"
_NO_LIFE = frozenset((b"\x43", b"\x52\x00", b"\x70\x00\x00\x00\x00"))
_NEVER = 253_402_300_799_000
"""The last second of the year 9999, in milliseconds since 1970 UTC: .NET's end of time."""
_TEXT_CODES = frozenset((0xA1, 0xA3, 0xB1, 0xB3))


class _Identity:
    """A broker property by its index in the properties section: a value of any type that an id may have."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, message: "Message", _: object = None) -> Value | None:
        return message.property_field(self._index)

    def __set__(self, message: "Message", value: Value | None) -> None:
        message.set_property_field(self._index, value)


class _Text:
    """A broker property that is a text, and is set as a string."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, message: "Message", _: object = None) -> str | None:
        fields = message.property_fields()
        return text(fields[self._index]) if len(fields) > self._index else None

    def __set__(self, message: "Message", value: str | None) -> None:
        message.set_property_field(self._index, None if value is None else string(value))


class _Symbol(_Text):
    """A broker property that is a text, and is set as a symbol."""

    def __init__(self, index: int, name: str) -> None:
        super().__init__(index)
        self._name = name

    def __set__(self, message: "Message", value: str | None) -> None:
        if value is not None and not value.isascii():
            raise Malformed(f"{self._name}: got characters beyond ASCII, expected a symbol")
        message.set_property_field(self._index, None if value is None else symbol(value))


# Struct, here and for `Arrival` and `Outgoing`: made in a quarter of the time of other classes, and without a cycle the
# garbage collector need not visit them. Together 2 µs a message (benchmarks/worker_cost.py).
class Message(Struct, eq=False, gc=False):
    """One message; raises Malformed when an invalid section is read."""

    sections: Sections
    """Whose annotations no longer have values that the service assigned."""
    arrival: Arrival
    _fields: Sequence[bytes] | None = None
    _envelope: tuple[str | None, str | None, str | None] | None = None

    # A Struct would show the body.
    __repr__ = object.__repr__

    @classmethod
    def received(cls, content: bytes, origin: Origin) -> "Message":
        """Return the message of the encoded *content* as the service delivered it."""
        raw = sections.split(content)
        raw.delivery_annotations = b""
        repair(raw)
        map_section.by_key(raw.application_properties, "application-properties")
        if raw.footer:
            map_section.by_key(raw.footer, "footer")
        annotations = raw.message_annotations
        if not annotations:
            return cls(raw, Arrival(origin))
        found = map_section.by_key(annotations, "message-annotations")
        kept = [annotations[start:stop] for key, (start, _, _, stop) in found.items() if key not in _ASSIGNED]
        if len(kept) < len(found):
            raw.message_annotations = join_map(_MESSAGE_ANNOTATIONS, kept, len(kept)) if kept else b""
        sequence_number, enqueued_time, locked_until, scheduled = [
            integer(annotations, found, name) for name in _NUMBERS
        ]
        is_event = origin.partition is not None
        offset, dead_letter_source = [text_or_none(annotations, found, name, may_be_number=is_event) for name in _TEXTS]
        if locked_until == LOCK_END_IN_SESSIONS:
            locked_until = None
        arrival = Arrival(
            origin, sequence_number, offset, enqueued_time, locked_until, dead_letter_source, scheduled_time=scheduled
        )
        return cls(raw, arrival)

    @classmethod
    def contained(cls, content: bytes, arrival: Arrival) -> "Message":
        """Return the message of the encoded *content*, which arrived inside another one."""
        message = cls.received(content, arrival.origin)
        message.arrival = arrival
        return message

    def encode(self) -> bytes:
        """Return the bytes to send: every section, except the values that belong to the delivery of this hop."""
        raw = self.sections
        lives_longer = _LONGEST_TTL in raw.header and self.time_to_live is not None
        header = _sender_header(raw.header, keeps_longest_life=lives_longer) if raw.header else b""
        properties = raw.properties
        if properties and not lives_longer:
            fields = self.property_fields()
            # The target computes it from the time to live; a stale one would overrule that at .NET receivers.
            if len(fields) > _ABSOLUTE_EXPIRY_TIME and fields[_ABSOLUTE_EXPIRY_TIME] != _NULL:
                properties = join_list(
                    _PROPERTIES, [*fields[:_ABSOLUTE_EXPIRY_TIME], _NULL, *fields[_ABSOLUTE_EXPIRY_TIME + 1 :]]
                )
        return b"".join((header, raw.message_annotations, properties, raw.application_properties, raw.body, raw.footer))

    @property
    def size(self) -> int:
        """The size of the message in bytes, with its current content."""
        return len(self.encode())

    def copy(self) -> "Message":
        """Return a message that can be edited without changing this one."""
        return Message(self.sections.copy(), self.arrival, self._fields)

    def envelope(self) -> tuple[str | None, str | None, str | None]:
        """Return what a batch repeats: an id that is text, a session id, a partition key."""
        if self._envelope is None:
            fields = self.property_fields()
            identity = fields[_MESSAGE_ID] if fields else _NULL
            self._envelope = (
                text(identity) if identity[0] in _TEXT_CODES else None,
                text(fields[_GROUP_ID]) if len(fields) > _GROUP_ID else None,
                self.partition_key if self.sections.message_annotations else None,
            )
        return self._envelope

    def property_fields(self) -> Sequence[bytes]:
        """Return the encoded fields of the properties section; no fields if there is no section."""
        if self._fields is None:
            self._fields = sections.fields_of(self.sections.properties)
        return self._fields

    # Broker properties

    message_id = _Identity(_MESSAGE_ID)
    """The id: a string from the Azure SDKs, an ulong, a uuid or a binary from others."""
    correlation_id = _Identity(_CORRELATION_ID)
    """The correlation id, of the types a message id may have."""
    to = _Text(_TO)
    """The address that the sender means it for."""
    subject = _Text(_SUBJECT)
    """The subject, which older SDKs call label."""
    reply_to = _Text(_REPLY_TO)
    """The address for replies."""
    content_type = _Symbol(_CONTENT_TYPE, "content type")
    """The media type of the body."""
    content_encoding = _Symbol(_CONTENT_ENCODING, "content encoding")
    """The encoding of the body in addition to its media type, such as gzip."""
    session_id = _Text(_GROUP_ID)
    """The session, AMQP's group id."""
    reply_to_session_id = _Text(_REPLY_TO_GROUP_ID)
    """The session for replies, AMQP's reply-to group id."""

    @property
    def has_message_id(self) -> bool:
        """Whether there is an id, of whatever type."""
        fields = self.property_fields()
        return bool(fields) and fields[_MESSAGE_ID] != _NULL

    @property
    def partition_key(self) -> str | None:
        """The partition key, an annotation that the sender may set."""
        value = self.annotation("x-opt-partition-key")
        return None if value is None else text(encode(value))

    @property
    def time_to_live(self) -> int | None:
        """
        The time to live in milliseconds, None for the entity's default.

        The header has room for 49.7 days, and its largest number means forever. What lives longer has besides a
        creation time, and the time at which it expires. 0 means none: Service Bus takes no message with it.

        Source: Azure/azure-sdk-for-net issues 38875 and 40915, for Java 17678; Azure/amqpnetlite issue 333.
        """
        fields = self._header_fields()
        if len(fields) <= _TTL or fields[_TTL] == _NULL:
            return None
        value, _ = decode(fields[_TTL])
        if value.kind != "uint" or not isinstance(value.payload, int):
            raise Malformed(f"header ttl: got a {value.kind}, expected milliseconds as a uint")
        if value.payload < _LONGEST_LIFE:
            return value.payload or None
        creation, expiry = self.property_field(_CREATION_TIME), self.property_field(_ABSOLUTE_EXPIRY_TIME)
        if creation is None or expiry is None:
            return None
        if not isinstance(creation.payload, int) or not isinstance(expiry.payload, int) or expiry.payload >= _NEVER:
            return None
        life = expiry.payload - creation.payload
        return life if life > _LONGEST_LIFE else None

    @time_to_live.setter
    def time_to_live(self, milliseconds: int | None) -> None:
        if milliseconds == _LONGEST_LIFE:
            milliseconds -= 1  # it would mean forever
        self._set_header_field(_TTL, None if milliseconds is None else uint(min(milliseconds, _LONGEST_LIFE)))
        if milliseconds is not None and milliseconds > _LONGEST_LIFE:
            created = self.property_field(_CREATION_TIME)
            if created is None or not isinstance(created.payload, int):
                created = timestamp(self.arrival.enqueued_time or 0)
                self.set_property_field(_CREATION_TIME, created)
            self.set_property_field(_ABSOLUTE_EXPIRY_TIME, timestamp(cast("int", created.payload) + milliseconds))

    @property
    def durable(self) -> Value | None:
        """Whether the sender asks for the message to be stored, which the older SDKs call ForcePersistence."""
        fields = self._header_fields()
        return decode(fields[_DURABLE])[0] if fields and fields[_DURABLE] != _NULL else None

    @durable.setter
    def durable(self, value: Value | None) -> None:
        self._set_header_field(_DURABLE, value)

    # Annotations and application properties

    def annotation(self, name: str) -> Value | None:
        """Return an annotation that a sender may set, None when absent or null."""
        return map_section.entry(self.sections.message_annotations, name)

    def set_annotations(self, changes: Mapping[str, Value | None]) -> None:
        """Set annotations by name; None removes one."""
        self.sections.message_annotations = map_section.edited(
            self.sections.message_annotations, _MESSAGE_ANNOTATIONS, changes, symbol
        )
        self._envelope = None

    def application_property(self, name: str) -> Value | None:
        """Return an application property, None when absent; a property that is null is the null value."""
        return map_section.entry(self.sections.application_properties, name)

    def application_properties(self) -> Iterable[tuple[str, Value]]:
        """Yield every application property with a textual name, in the order of the wire."""
        section = self.sections.application_properties
        for key, _, value_start, stop in map_section.entries(section):
            if key is not None:
                yield key, decode(section, value_start, stop)[0]

    def set_properties(self, changes: Mapping[str, Value | None], *, in_any_case: bool = True) -> None:
        """
        Set application properties by name, in one re-encoding of their section; None removes one.

        Other spellings of a name, which rules would also read, are removed unless *in_any_case* is False.
        """
        self.sections.application_properties = map_section.edited(
            self.sections.application_properties, _APPLICATION_PROPERTIES, changes, string, in_any_case=in_any_case
        )

    def rename_properties(self, renamed: Callable[[str], str | None]) -> None:
        """Give every application property with a textual name the name that *renamed* returns; None removes it."""
        self.sections.application_properties = map_section.renamed(
            self.sections.application_properties, _APPLICATION_PROPERTIES, renamed
        )

    def append_properties(self, pairs: bytes, count: int) -> None:
        """Append *count* encoded pairs of application properties, none of which may exist already."""
        self.sections.application_properties = map_section.appended(
            self.sections.application_properties, _APPLICATION_PROPERTIES, pairs, count
        )

    # Body

    @property
    def body(self) -> bytes | None:
        """The bytes of the data sections, joined; None for a value or sequence body."""
        content = sections.only_data(self.sections.body)
        if content is not None:
            return content
        parts = sections.body_parts(self.sections.body)
        if any(number != sections.DATA for number, _ in parts):
            return None
        return b"".join([value.payload for _, value in parts if isinstance(value.payload, bytes)])

    @body.setter
    def body(self, content: bytes) -> None:
        self.sections.body = sections.data(content)

    # Fields of the header and properties sections

    def _header_fields(self) -> list[bytes]:
        return list(sections.fields_of(self.sections.header))

    def _set_header_field(self, index: int, value: Value | None) -> None:
        fields = self._header_fields()
        fields += [_NULL] * (index + 1 - len(fields))
        fields[index] = _NULL if value is None else encode(value)
        self.sections.header = join_list(_HEADER, fields)

    def property_field(self, index: int) -> Value | None:
        """Return a field of the properties section, None without one."""
        fields = self.property_fields()
        if len(fields) <= index or fields[index] == _NULL:
            return None
        return decode(fields[index])[0]

    def set_property_field(self, index: int, value: Value | None) -> None:
        """Set a field of the properties section; None removes it."""
        fields = list(self.property_fields())
        fields += [_NULL] * (index + 1 - len(fields))
        fields[index] = _NULL if value is None else encode(value)
        self.sections.properties = join_list(_PROPERTIES, fields)
        self._fields = fields
        self._envelope = None


@lru_cache(maxsize=256)
def _sender_header(header: bytes, *, keeps_longest_life: bool) -> bytes:
    """
    Return the header without the fields that the service sets, and without a time to live of 0 or forever.

    Cached, because most messages share a few headers.
    """
    fields = list(sections.fields_of(header)[:_SENDER_HEADER_FIELDS])
    if len(fields) > _TTL and (fields[_TTL] in _NO_LIFE or (fields[_TTL] == _LONGEST_TTL and not keeps_longest_life)):
        fields[_TTL] = _NULL
    stripped = join_list(_HEADER, fields)
    return b"" if stripped == _EMPTY_HEADER else stripped
