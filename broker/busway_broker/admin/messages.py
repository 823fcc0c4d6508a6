"""Messages and events as plain data, and messages made of plain data, for the JSON API."""

import base64
import codecs
from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from typing import Any

from busway_broker import errors
from busway_broker.core.content import Content
from busway_broker.core.event import Event
from busway_broker.core.message import StoredMessage
from busway_broker.core.properties import DESCRIPTION, REASON
from busway_broker.errors import Refusal
from shared.amqp.codec import decode, encode, items_of, pairs_of, plain
from shared.amqp.scan import join_list
from shared.amqp.sections import DATA, body_parts, data, descriptor, split
from shared.amqp.values import (
    NULL,
    Array,
    Described,
    Malformed,
    Value,
    boolean,
    double,
    int_,
    long,
    map_,
    string,
    symbol,
)
from shared.rules.decimals import decimal_of
from shared.rules.value_text import value_text
from shared.rules.value_types import DECIMALS, type_of

MAX_BODY = 64 * 1024
"""Bytes of a body that are shown; of a longer one the beginning is."""

# The fields of the properties section in their order. Times are left out: few clients set them.
_PROPERTIES = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    None,
    None,
    "session_id",
    None,
    "reply_to_session_id",
)
_DECODER = codecs.getincrementaldecoder("utf-8")
_SYMBOLS = frozenset(("content_type", "content_encoding"))
_SETTABLE = tuple(name for name in _PROPERTIES if name not in (None, "user_id"))
_KNOWN = (*_SETTABLE, "partition_key", "application_properties", "body")


def message_of(message: StoredMessage, *, has_body: bool) -> dict[str, object]:
    """Return a message: what the entity assigned and, with *has_body*, what the sender wrote."""
    content: Content = message.content
    assigned: dict[str, object] = {
        "sequence_number": message.sequence_number,
        "enqueue_sequence_number": message.original_number,
        "enqueued_time": message.enqueued_time,
        "expires_at": message.expires_at,
        "scheduled_enqueue_time": content.scheduled_enqueue_time,
        "state": message.state.name.lower(),
        "is_locked": message.lock_token is not None,
        "locked_until": message.locked_until if message.lock_token is not None else None,
        "delivery_count": message.delivery_count,
        "message_id": str(plain(decode(content.message_id)[0])),
        "session_id": content.session_id,
        "partition_key": content.partition_key,
        "size": content.size,
    }
    return assigned | _written(content.bare) if has_body else assigned


def event_of(event: Event, region: int | None) -> dict[str, object]:
    """Return an event with its body, as a region delivers it."""
    return {
        "sequence_number": event.sequence_number,
        "offset": event.offset if region is None else event.offset_in(region),
        "enqueued_time": event.enqueued_time,
        "partition_key": event.content.partition_key,
    } | _written(event.content.bare)


def _written(bare: bytes) -> dict[str, object]:
    """Return the properties that are set, the application properties, and the body."""
    sections = split(bare)
    found: dict[str, object] = {}
    if sections.properties:
        fields = decode(sections.properties, descriptor(sections.properties, 0)[1])[0].payload
        assert isinstance(fields, tuple)  # noqa: S101 - checked when the message arrived
        for name, field in zip(_PROPERTIES, fields, strict=False):
            if name is not None and isinstance(field, Value) and field.payload is not None:
                found[name] = _json(field)
    properties: object = {}
    if sections.application_properties:
        start = descriptor(sections.application_properties, 0)[1]
        try:
            properties = _json(decode(sections.application_properties, start)[0])
        except Malformed as malformed:
            properties = {"?": malformed.description}
    found["application_properties"] = properties
    if isinstance(properties, dict) and REASON in properties:
        found |= {"dead_letter_reason": properties[REASON], "dead_letter_description": properties.get(DESCRIPTION)}
    return found | _body(sections.body)


def _body(encoded: bytes) -> dict[str, object]:
    """Return the body: text, the Base64 of other data, or the values of a sequence or value."""
    parts = body_parts(encoded)
    if any(kind != DATA for kind, _ in parts):
        shown = [_json(value) for _, value in parts]
        return {"body": shown if len(shown) > 1 else shown[0]}
    content = b"".join(value.payload for _, value in parts if isinstance(value.payload, bytes))
    found: dict[str, object] = {"body_size": len(content)} if len(content) > MAX_BODY else {}
    content = content[:MAX_BODY]
    try:
        # The end of a body that is cut may be the middle of a character.
        found["body"] = _DECODER().decode(content, final=not found)
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(content).decode()
    return found


def _json(value: Value) -> object:
    """Return a value as JSON has it: bytes as Base64, a decimal as a number if a float holds it, others as text."""
    payload = value.payload
    found: object = value_text(value)
    match type_of(value):
        case "list":
            found = [_json(item) for item in items_of(value)]
        case "map":
            found = {_name(key): _json(item) for key, item in pairs_of(value)}
        case "array" if isinstance(payload, Array):
            found = [_json(item) for item in payload.items]
        case kind if kind in DECIMALS and isinstance(payload, bytes):
            number = decimal_of(kind, payload)
            if number.is_finite() and Decimal(repr(float(number))) == number:
                found = float(number)
        case "binary" if isinstance(payload, bytes):
            found = base64.b64encode(payload).decode()
        case "uri" if isinstance(payload, Described):
            found = payload.value.payload
        case kind if kind not in ("char", "timestamp", "described") and isinstance(payload, bool | int | str | None):
            found = payload
        case "float" | "double" if isinstance(payload, float) and isfinite(payload):
            found = payload
    return found


def _name(key: Value) -> str:
    return key.payload if isinstance(key.payload, str) else value_text(key)


def encode_message(given: Mapping[str, Any]) -> bytes:
    """Return the encoded message that plain data describes; a Refusal for an unknown key or a wrong type."""
    unknown = sorted(given.keys() - set(_KNOWN))
    if unknown:
        raise _wrong(f"{', '.join(unknown)}: unknown, expected {', '.join(_KNOWN)}")
    fields = [encode(_text(given, name)) for name in _PROPERTIES]
    while fields and fields[-1] == b"\x40":
        fields.pop()
    key = given.get("partition_key")
    parts = []
    if key is not None:
        annotations = map_([(symbol("x-opt-partition-key"), _text(given, "partition_key"))])
        parts.append(b"\x00\x53\x72" + encode(annotations))
    if fields:
        parts.append(join_list(b"\x00\x53\x73", fields))
    properties = given.get("application_properties", {})
    if not isinstance(properties, dict):
        raise _wrong("application_properties: expected an object")
    if properties:
        pairs = [(string(name), _property(name, value)) for name, value in properties.items()]
        parts.append(b"\x00\x53\x74" + encode(map_(pairs)))
    body = given.get("body", "")
    if not isinstance(body, str):
        raise _wrong("body: expected text")
    return b"".join((*parts, data(body.encode())))


def _text(given: Mapping[str, Any], name: str | None) -> Value:
    value = None if name is None else given.get(name)
    if value is None:
        return NULL
    if not isinstance(value, str):
        raise _wrong(f"{name}: expected text")
    return symbol(value) if name in _SYMBOLS and value.isascii() else string(value)


def _property(name: str, value: object) -> Value:
    match value:
        case None:
            return NULL
        case bool():
            return boolean(value)
        case str():
            return string(value)
        case int() if -(2**31) <= value < 2**31:
            return int_(value)
        case int() if -(2**63) <= value < 2**63:
            return long(value)
        case float():
            return double(value)
    raise _wrong(f"application_properties.{name}: expected text, a number, true, false or null")


def _wrong(description: str) -> Refusal:
    return Refusal(errors.ARGUMENT_ERROR, description)
