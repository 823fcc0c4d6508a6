"""
Shows a message as text: its fields, its properties with their types, and its body.

A message can have any content, so only printable characters are in the text.
"""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import accumulate
from typing import NamedTuple

import msgspec

from shared.amqp import map_section, sections
from shared.amqp.codec import decode, items_of
from shared.amqp.values import Described, Value
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.printable import printable
from shared.rules.value_text import PLAIN, type_name, typed_text, value_text

_HEADER = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
# These describe the delivery; they are not sent to the target.
_DELIVERY_FIELDS = ("first-acquirer", "delivery-count")
_PROPERTIES = (
    *("message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding"),
    *("absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id"),
)
# The names in task files and in Azure.
_NAMES = {"group-id": "session-id", "reply-to-group-id": "reply-to-session-id", "ttl": "time-to-live"}
ANNOTATION, PROPERTY = "annotation", "property"
_UNREADABLE = "(cannot be read)"
_HEX_BYTES = 16
_MOST_HEX_LINES = 32
_TEXT_OR_VALUE = re.compile(r'"(?:[^"\\]|\\.)*"|[^\[\]{}"]+')
_DEEPEST = 100


class Field(NamedTuple):
    """A field, property or annotation: its name, such as `subject` or `property vip`, its AMQP type and its value."""

    name: str
    type: str
    """Empty if the section cannot be read."""
    value: str
    is_plain: bool = False
    """Whether the value shows its type."""

    @property
    def text(self) -> str:
        """The value, with its type unless it shows it."""
        return self.value if self.is_plain or not self.type else f"{self.value} ({self.type})"


def fields(message: Message) -> Iterator[Field]:
    """Yield the fields, properties and annotations of a message."""
    for name, value in named_values(message):
        if value is None:
            yield Field(name, "", _UNREADABLE)
        else:
            kind = type_name(value)
            yield Field(name, kind, value_text(value), is_plain=kind in PLAIN)
    raw = message.sections
    for name, section in (("delivery annotations", raw.delivery_annotations), ("footer", raw.footer)):
        if section:
            yield Field(name, "", section.hex(" "))


def named_values(message: Message) -> Iterator[tuple[str, Value | None]]:
    """Yield the values of `fields` by their names, None for a section that cannot be read."""
    raw = message.sections
    yield from _fields(raw.header, _HEADER)
    yield from _fields(raw.properties, _PROPERTIES)
    yield from _entries(ANNOTATION, raw.message_annotations)
    yield from _entries(PROPERTY, raw.application_properties)


def body_lines(message: Message) -> list[str]:
    """
    Return the body: JSON indented, other text unchanged, anything else in hexadecimal digits.

    A body that is not data begins with the name of its section.
    """
    body = message.sections.body
    if not body:
        return ["(none)"]
    try:
        content = message.body
        parts = sections.body_parts(body)
    except MessageRejected:
        return [_UNREADABLE, *_hex(body)]
    if content is not None:
        return _content_lines(content)
    (number, value), *_ = parts
    if number == sections.VALUE and isinstance(value.payload, str):
        return [f"({sections.NAMES[number]}, {value.kind})", *_content_lines(value.payload.encode())]
    # Several sequences are one body.
    return [f"({sections.NAMES[number]}) {typed_text(value)}" for number, value in parts]


def bytes_text(content: bytes) -> str:
    """Return *content* in one line: as text if it is UTF-8, else in hexadecimal digits."""
    try:
        return printable(content.decode())
    except UnicodeDecodeError:
        return f"{content.hex(' ')} (binary)"


def body_text(message: Message) -> str:
    """
    Return the whole body in one line: text as it is, anything else with its type, bytes in hexadecimal digits.

    Nothing is cut: the message may be removed once its text is shown.
    """
    body = message.sections.body
    try:
        content = message.body
        parts = sections.body_parts(body)
    except MessageRejected:
        return f"{body.hex(' ')} {_UNREADABLE}"
    if content is not None:
        return bytes_text(content)
    texts = []
    for number, value in parts:
        kind = "sequence" if number == sections.SEQUENCE else f"value, {type_name(value)}"
        text = (
            printable(value.payload) if value.kind == "string" and isinstance(value.payload, str) else value_text(value)
        )
        texts.append(f"{text} ({kind})")
    return " ".join(texts)


def _content_lines(content: bytes) -> list[str]:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return _hex(content)
    lines = _indented(text) or text.split("\n")
    if all(line.rstrip("\r").replace("\t", " ").isprintable() for line in lines):
        return [line.rstrip("\r").replace("\t", "  ") for line in lines]
    return _hex(content)


def _indented(text: str) -> list[str]:
    """Return JSON with one line per value and its literals unchanged; an empty list for other text."""
    try:
        # Numbers stay text: converting a very long one would take too long.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refused)
    except (ValueError, RecursionError):
        return []
    deepest = max(accumulate(1 if each in "[{" else -1 for each in _TEXT_OR_VALUE.sub("", text)), default=0)
    if deepest > _DEEPEST:
        return []
    try:
        return msgspec.json.format(text, indent=2).split("\n")
    except msgspec.DecodeError:  # of an escape of half a surrogate pair, which JSON allows
        return []


def _refused(_: str) -> None:
    raise ValueError("is not a JSON number")


def _hex(content: bytes) -> list[str]:
    starts = range(0, len(content), _HEX_BYTES)
    lines = [f"{start:06x}  {content[start : start + _HEX_BYTES].hex(' ')}" for start in starts[:_MOST_HEX_LINES]]
    if len(starts) > _MOST_HEX_LINES:
        rest = content[_MOST_HEX_LINES * _HEX_BYTES :]
        # The digest shows a change in the part that is not printed.
        lines.append(f"… {len(rest)} more bytes, SHA-256 {sha256(rest).hexdigest()}")
    return lines or ["(empty)"]


def _fields(section: bytes, names: tuple[str, ...]) -> Iterator[tuple[str, Value | None]]:
    if not section:
        return
    try:
        described, _ = decode(section)
        payload = described.payload
        values = items_of(payload.value) if isinstance(payload, Described) else ()
    except MessageRejected:
        yield f"{names[0]} …", None
        return
    for name, value in zip(names, values, strict=False):
        if value.kind != "null" and name not in _DELIVERY_FIELDS:
            yield _NAMES.get(name, name), value


def _entries(kind: str, section: bytes) -> Iterator[tuple[str, Value | None]]:
    found: list[tuple[str, Value | None]] = []
    try:
        for key, key_start, value_start, stop in map_section.entries(section):
            name = key if key is not None else typed_text(decode(section, key_start)[0])
            found.append((f"{kind} {printable(name)}", decode(section, value_start, stop)[0]))
    except MessageRejected:
        found = [(f"{kind} …", None)]
    yield from found
