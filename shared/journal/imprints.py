"""
Digests of a message's content, which are equal for equal messages at both sides.

1. The body digest is BLAKE2b of 16 bytes over the joined bytes of the data sections, or over the canonical encoding of
   another body.
2. The property digest is BLAKE2b of 8 bytes over the application properties in any order, and those broker properties
   that a sender sets and no hop changes. It depends only on the type and content of
   a value, not on its encoding, since Azure's host encodes values again.
3. Left out are all properties `repl-*`, those that a service sets (on a dead letter, and the name of the rule on a copy
   that a rule with an action selected), and those that the rule or the routes of the task set: they differ between the
   sides by design.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from copy import replace
from functools import lru_cache, partial
from hashlib import blake2b

from shared.amqp import map_section, sections
from shared.amqp.codec import decode, decode_all, encode
from shared.amqp.scan import extent_bytes, text
from shared.amqp.shapes import Part, Shapes
from shared.amqp.values import Malformed, string
from shared.journal.canonical import CANONICAL_WIDTHS, canonical
from shared.message.loop_prevention import path_before
from shared.message.mapping import BASE64, ENCODING
from shared.message.message import Message
from shared.message.metadata import PATH
from shared.protocols import Imprint
from shared.rules import SYSTEM_PROPERTIES, Action
from shared.rules.ruleset import RULE_NAME
from shared.rules.syntax import Scope

BODY_DIGEST_BYTES = 16
PROPERTY_DIGEST_BYTES = 8
# Copying one takes less time than making one.
_OF_BODY, _OF_PROPERTIES = blake2b(digest_size=BODY_DIGEST_BYTES), blake2b(digest_size=PROPERTY_DIGEST_BYTES)

_NULL = b"\x40"
_TEXT_CODES = frozenset((0xA1, 0xA3, 0xB1, 0xB3))
_EMPTY_TEXTS = frozenset((b"\xa1\x00", b"\xa3\x00", b"\xb1\x00\x00\x00\x00", b"\xb3\x00\x00\x00\x00"))

# Fields of the properties section, by their names in rules.
_COVERED = {
    1: "UserId",
    2: "To",
    3: "Subject",
    4: "ReplyTo",
    5: "CorrelationId",
    6: "ContentType",
    7: "ContentEncoding",
    12: "ReplyToSessionId",
}
_CORRELATION_ID, _CONTENT_ENCODING, _LAST_FIELD = 5, 7, 12

_STAMPS = b"repl-"
_DEAD_LETTER = b"DeadLetter"
_REASON = "DeadLetterReason"
_REASON_CHARACTERS = 256
_SET_BY_SERVICE = frozenset((b"DeadLetterReason", b"DeadLetterErrorDescription", RULE_NAME.encode()))
_ENCODINGS = ENCODING.encode()

_SHORT_STRING = 0xA1
_DATA_8, _DATA_32 = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"
# Offset of the first pair of application properties, by the first bytes of the section.
_CONTENT = {b"\x00\x53\x74\xc1": 6, b"\x00\x53\x74\xd1": map_section.WIDE_CONTENT}
_FIRST_STAMP = encode(string(PATH))
_HEADER_TTL, _HEADER_DELIVERY_COUNT = 2, 4
_MOST_MILLISECONDS, _MOST_DELIVERIES = 2**32 - 1, 2**31 - 1


class Imprinter:
    """Computes the imprints of one task's messages, without the properties that its *actions* change."""

    def __init__(self, actions: Iterable[Action] = ()) -> None:
        """Collect the properties that the actions set or remove."""
        changed = [statement.property for action in actions for statement in action.statements]
        self._left_out = frozenset(each.name.lower().encode() for each in changed if each.scope is Scope.USER)
        system = [SYSTEM_PROPERTIES[each.name.lower()].name for each in changed if each.scope is Scope.SYSTEM]
        covered = tuple(index for index, name in _COVERED.items() if name not in system)
        self._counts_correlation_id = _CORRELATION_ID in covered
        self._fields = lru_cache(maxsize=1024)(partial(_fields, covered))
        self._plans = Shapes(self._plan)

    def arriving(self, message: Message) -> Imprint:
        """Return the imprint of *message* as it was received, before anything has changed it."""
        raw = message.sections
        digest, size = body_digest(raw.body)
        life, attempt = _life_and_attempt(raw.header) if raw.header else (None, None)
        enqueued = message.arrival.enqueued_time
        identity = order_key = None
        hops: Sequence[str] = ()
        try:
            identity, session_id, partition_key = message.envelope()
            order_key = session_id if session_id is not None else partition_key or None  # as Outgoing.order_key
            if identity is None and message.has_message_id:
                identity = _identity(message.property_fields()[0])
            if raw.application_properties.find(_STAMPS) >= 0:  # faster than "in", see shared.message.metadata
                hops = path_before(message)
        except Malformed:
            # The pipeline may reject the message for that; the journal has a record in any case.
            identity = order_key = None
        return Imprint(
            digest,
            size,
            self._property_digest(message),
            identity,
            order_key,
            None if life is None or enqueued is None else enqueued + life,
            attempt,
            hops,
            raw.properties,
            raw.application_properties,
            raw.body,
            _dead_letter_reason(message),
        )

    def departing(self, message: Message, arrived: Imprint) -> Imprint:
        """Return *arrived* if the content of *message* is unchanged, else a new imprint."""
        raw = message.sections
        is_same_body = raw.body == arrived.body
        if is_same_body and raw.properties == arrived.properties:
            # Stamps are appended, so the original content is still in front of them in one piece.
            before, section = arrived.application_properties, raw.application_properties
            content = before[_CONTENT.get(before[:4], 0) :]
            if section.startswith(content + _FIRST_STAMP, map_section.WIDE_CONTENT):
                return arrived
        digest, size = (arrived.body_digest, arrived.body_size) if is_same_body else body_digest(raw.body)
        properties = self._property_digest(message)
        if digest == arrived.body_digest and size == arrived.body_size and properties == arrived.property_digest:
            return arrived
        return replace(arrived, body_digest=digest, body_size=size, property_digest=properties)

    def _property_digest(self, message: Message) -> bytes:
        section = message.sections.application_properties
        try:
            # In the order of their bytes: the number of a field is less than any format code.
            content = self._covered_fields(message.property_fields()) + b"".join(self._pairs(section))
        except Malformed:
            # The properties cannot be read, so the digest covers their bytes.
            content = b"".join(sorted((section, message.sections.properties)))
        digest = _OF_PROPERTIES.copy()
        digest.update(content)
        return digest.digest()

    def _covered_fields(self, fields: Sequence[bytes]) -> bytes:
        # Without the ids, most messages share a few of these.
        before, after = self._fields(
            tuple(fields[1:_CORRELATION_ID]),
            tuple(fields[_CORRELATION_ID + 1 : _CONTENT_ENCODING + 1]),
            fields[_LAST_FIELD] if len(fields) > _LAST_FIELD else _NULL,
        )
        if self._counts_correlation_id and len(fields) > _CORRELATION_ID and fields[_CORRELATION_ID] != _NULL:
            return before + _field(_CORRELATION_ID, fields[_CORRELATION_ID]) + after
        return before + after

    def _pairs(self, section: bytes) -> Sequence[bytes]:
        """Return the application properties that the digest covers, each canonical, in the order of their bytes."""
        plan = self._plans.find(section) if section else ()
        if plan is not None:
            return [section[start:stop] for start, stop in plan]
        if _ENCODINGS in section:
            return sorted(self._decoded_pairs(section))
        pairs = []
        for start, key_start, value_start, stop in map_section.walk(section):
            if self._counts(section[key_start:value_start]):
                pairs.append(canonical(section, start, value_start) + canonical(section, value_start, stop))
        return sorted(pairs)

    def _plan(self, section: bytes) -> tuple[list[Part], Sequence[tuple[int, int]]] | None:
        """Return where the pairs are, in the order of their keys, if the digest covers all and all are canonical."""
        parts: list[Part] = []
        pairs: dict[bytes, tuple[int, int]] = {}
        for start, key_start, value_start, stop in map_section.walk(section):
            code, key = section[value_start], section[start:value_start]
            extent = extent_bytes(code)
            is_canonical = section[start] == _SHORT_STRING and code in CANONICAL_WIDTHS
            if extent is None or not is_canonical or key in pairs or not self._counts(section[key_start:value_start]):
                return None
            parts.append((start, value_start + extent, stop))
            pairs[key] = start, stop
        # No encoded key is the beginning of another one, so the keys alone decide the order.
        return parts, [pairs[key] for key in sorted(pairs)]

    def _counts(self, key: bytes) -> bool:
        return not key.startswith(_STAMPS) and key not in _SET_BY_SERVICE and key.lower() not in self._left_out

    def _decoded_pairs(self, section: bytes) -> list[bytes]:
        """Do the same for properties of which some are encoded as text, for a service without binary properties."""
        found = {key: section[value_start:stop] for key, _, value_start, stop in map_section.entries(section) if key}
        pairs = []
        for key, value in found.items():
            name = key.encode()
            if not self._counts(name):
                continue
            encoding = found.get(ENCODING + key)
            content = value if encoding is None else _decoded(value, encoding)
            encoded_key = encode(string(key))
            pairs.append(encoded_key + canonical(content, 0, len(content)))
        return pairs


def _dead_letter_reason(message: Message) -> str | None:
    # Most messages are no dead letters: see `arriving` for `find`.
    if message.sections.application_properties.find(_DEAD_LETTER) < 0:
        return None
    try:
        value = message.application_property(_REASON)
    except Malformed:
        return None
    return value.payload[:_REASON_CHARACTERS] if value is not None and isinstance(value.payload, str) else None


def of_unreadable(content: bytes) -> Imprint:
    """Return the imprint of bytes that are not a message: the digest of all bytes."""
    digest = blake2b(content, digest_size=BODY_DIGEST_BYTES).digest()
    return Imprint(digest, len(content), None, None, None, None, None, ())


def body_digest(body: bytes) -> tuple[bytes, int]:
    """Return the digest of an encoded body, and the number of bytes that it covers."""
    prefix = body[:4]
    content: bytes
    if prefix == _DATA_32 and len(body) == 8 + int.from_bytes(body[4:8]):
        content = body[8:]
    elif prefix == _DATA_8 and len(body) == 5 + body[4]:
        content = body[5:]
    else:
        content = _unusual_content(body)
    digest = _OF_BODY.copy()
    digest.update(content)
    return digest.digest(), len(content)


def _unusual_content(body: bytes) -> bytes:
    try:
        parts = sections.body_parts(body)
    except Malformed:
        return body
    if all(number == sections.DATA for number, _ in parts):
        return b"".join([value.payload for _, value in parts if isinstance(value.payload, bytes)])
    content = []
    position = 0
    while position < len(body):
        start = sections.descriptor(body, position)[1]
        _, stop = decode(body, start)
        # Azure's host turns a null body into an empty data body.
        content.append(canonical(body, start, stop) if body[start] != _NULL[0] else b"")
        position = stop
    return b"".join(content)


def _fields(
    covered: tuple[int, ...], before: tuple[bytes, ...], after: tuple[bytes, ...], last: bytes
) -> tuple[bytes, bytes]:
    """Return the encoded fields that the digest covers: those before the correlation id, and those after it."""
    numbered = (*enumerate(after, _CORRELATION_ID + 1), (_LAST_FIELD, last))
    return (
        b"".join([_field(index, field) for index, field in enumerate(before, 1) if index in covered]),
        b"".join([_field(index, field) for index, field in numbered if index in covered]),
    )


def _field(index: int, field: bytes) -> bytes:
    """Return an encoded field with its number; empty bytes if it is null, or empty for Azure's host."""
    if field == _NULL or field in _EMPTY_TEXTS:
        return b""
    if index == _CORRELATION_ID:
        # Azure's host turns an id of another type into a string.
        content = (_identity(field) or "").encode()
        return bytes((index, 0xB1)) + len(content).to_bytes(4) + content
    return bytes((index,)) + canonical(field, 0, len(field))


def _decoded(value: bytes, encoding: bytes) -> bytes:
    """Return the encoded value that a text represents; the text itself if its encoding is unknown."""
    content, kind = decode_all(value).payload, decode_all(encoding).payload
    if not isinstance(content, str):
        return value
    try:
        plain = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        return value
    return b"\xb0" + len(plain).to_bytes(4) + plain if kind == BASE64 else plain


def _identity(field: bytes) -> str | None:
    """Return a message or correlation id as text, whatever its type."""
    if field[0] in _TEXT_CODES:
        return text(field)
    payload = decode_all(field).payload
    if payload is None:
        return None
    return payload.hex() if isinstance(payload, bytes) else str(payload)


@lru_cache(maxsize=1024)
def _life_and_attempt(header: bytes) -> tuple[int | None, int | None]:
    """
    Return the time to live in milliseconds and the delivery count; most messages share a few headers.

    Service Bus counts the failed deliveries; Azure's host passes one more.
    """
    try:
        values = [decode_all(field).payload for field in sections.fields_of(header)]
    except Malformed:
        return None, None
    values += [None] * (_HEADER_DELIVERY_COUNT + 1 - len(values))
    life, deliveries = values[_HEADER_TTL], values[_HEADER_DELIVERY_COUNT]
    # A sender may write a number that does not fit into a record; it is left out.
    return (
        life if isinstance(life, int) and life <= _MOST_MILLISECONDS else None,
        max(deliveries, 1) if isinstance(deliveries, int) and deliveries <= _MOST_DELIVERIES else None,
    )
