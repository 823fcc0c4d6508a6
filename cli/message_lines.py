"""
The lines that `busway receive` prints: one for each message, with its whole body, because the message is then removed.

A value without a type in parentheses is text, a number of a usual type, or true or false; a text that could be read as
one of these is in quotes.
"""

import json
from collections.abc import Iterator, Mapping

from shared.amqp.values import Value
from shared.errors import MessageRejected
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.metadata import STAMPS
from shared.message.view import ANNOTATION, PROPERTY, body_text, named_values
from shared.printable import printable
from shared.rules.value_text import timespan_text, typed_text, value_text
from shared.rules.value_types import TICKS_PER_MILLISECOND

_BARE = frozenset(["int", "long", "double", "boolean"])
# These come first, under the names of task files.
_FIRST = ("message-id", "session-id", "partition-key", "time-to-live")
# The sender's SDK computes them from the time to live; the rest of the header belongs to the delivery.
_LEFT_OUT = frozenset(["absolute-expiry-time", "creation-time", "durable", "priority"])


def message_line(content: bytes, system: Mapping[str, object] | None = None) -> str:
    """Return a message as one line: its body, what it is besides (*system* first), and its application properties."""
    try:
        message = Message.received(content, Origin("", ""))
        found = {name: value for name, value in named_values(message) if name not in _LEFT_OUT}
        pairs = [*_system(message, found), *sorted(_properties(found))]
    except MessageRejected:
        return f"{content.hex(' ')} (cannot be read)"
    if None in found.values():
        return f"{content.hex(' ')} (cannot be read)"
    given = [(name, printable(str(value))) for name, value in (system or {}).items() if value is not None]
    return "  ".join([body_text(message), " ".join(f"{name}={text}" for name, text in [*given, *pairs])]).rstrip()


def _system(message: Message, found: Mapping[str, Value | None]) -> Iterator[tuple[str, str]]:
    own = {
        name: value
        for name, value in found.items()
        if value is not None and not name.startswith((ANNOTATION, PROPERTY))
    }
    shown = {name: _text(value) for name, value in own.items()}
    # In a session the partition key is the session id.
    if message.partition_key is not None and message.session_id is None:
        shown["partition-key"] = printable(message.partition_key)
    if message.time_to_live is not None:
        shown["time-to-live"] = timespan_text(message.time_to_live * TICKS_PER_MILLISECOND)
    for name in (*_FIRST, *(name for name in shown if name not in _FIRST)):
        if name in shown:
            yield name.replace("-", "_"), shown[name]


def _properties(found: Mapping[str, Value | None]) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        kind, _, rest = name.partition(" ")
        if kind == PROPERTY and value is not None:
            quotes = not rest.startswith(STAMPS) and isinstance(value.payload, str) and _reads_otherwise(value.payload)
            yield rest, json.dumps(value.payload) if quotes and value.kind == "string" else _text(value)


def _text(value: Value) -> str:
    if value.kind == "string" and isinstance(value.payload, str):
        return printable(value.payload)
    return value_text(value) if value.kind in _BARE else typed_text(value)


def _reads_otherwise(text: str) -> bool:
    """Return whether text could be taken for a value that is not text."""
    try:
        return not isinstance(json.loads(text), dict | list)
    except ValueError:
        return text.endswith(")")
