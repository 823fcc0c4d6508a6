"""
Envelopes: messages as text, for a channel that carries nothing else.

1. A message is a CloudEvent whose data are all its AMQP sections. What an envelope restores is equal bit for bit.
2. A text is one CloudEvent, or several as a JSON array.
3. `source`, `id` and the content identify the message, so that a repeated envelope can be recognized, and nobody can
   pass another message off as it.

Source: CloudEvents 1.0.2, "JSON Event Format" 3 (structured) and 4 (batch); docs/decisions/0041.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from shared.codecs.json import read
from shared.errors import MessageRejected

EVENT_TYPE = "busway.message"
CONTENT_TYPE = "application/vnd.busway.amqp-message"

type Form = Literal["service-bus", "event-hubs"]
"""The form of a message: as Service Bus or as Event Hubs delivers it."""
MESSAGE: Form = "service-bus"
EVENT: Form = "event-hubs"
KINDS = (MESSAGE, EVENT)
MOST_EVENTS = 100_000

_NOT_AN_ENVELOPE = "NotAnEnvelope"
_VERSION = "1.0"
_ATTRIBUTES = ("specversion", "type", "source", "id", "sourcekind", "datacontenttype", "data_base64")
# The bytes with which `encode_event` and `envelopes` begin; other channels recognize envelopes by them.
_BEGINNING = f'{{"specversion":"{_VERSION}","type":"{EVENT_TYPE}",'.encode()
_BEGINNINGS = (_BEGINNING, b"[" + _BEGINNING)
# Base64 of whole groups of three bytes, which what follows does not change.
_BASE64_BEGINNINGS = tuple(base64.b64encode(beginning[: len(beginning) // 3 * 3]) for beginning in _BEGINNINGS)


class Event(NamedTuple):
    """A message in an envelope: its identity, the kind of its source's namespace, and its encoded AMQP sections."""

    source: str
    id: str
    kind: str
    content: bytes


def encode_event(event: Event) -> str:
    """Return *event* as the text of a structured CloudEvent."""
    return json.dumps(
        {
            "specversion": _VERSION,
            "type": EVENT_TYPE,
            "source": event.source,
            "id": event.id,
            "sourcekind": event.kind,
            "datacontenttype": CONTENT_TYPE,
            "data_base64": base64.b64encode(event.content).decode(),
        },
        separators=(",", ":"),
    )


def envelopes(events: Sequence[str], limit: int) -> list[str]:
    """
    Return the texts of as few envelopes as possible for *events*, in their order.

    Units:   *limit* is the size of a text in bytes; an event that is larger is the only one of its envelope. Texts of
             events are ASCII.
    """
    groups: list[list[str]] = []
    size = 0
    for event in events:
        if groups and size + len(event) + 1 <= limit and len(groups[-1]) < MOST_EVENTS:
            groups[-1].append(event)
            size += len(event) + 1
        else:
            groups.append([event])
            size = len(event) + 2
    return [group[0] if len(group) == 1 else f"[{','.join(group)}]" for group in groups]


def envelope_in(content: bytes) -> bytes | None:
    """Return the envelope that *content* is, as it is or in base64; None for anything else."""
    if content.startswith(_BEGINNINGS):
        return content
    if not content.startswith(_BASE64_BEGINNINGS):
        return None
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error:
        return None


def event_key(content: bytes) -> bytes | None:
    """Return what is equal for all copies of an envelope with one event, None for anything else."""
    envelope = envelope_in(content)
    if envelope is None or not envelope.startswith(_BEGINNING):
        return None
    return blake2b(envelope, digest_size=32).digest()


def in_order(event: dict[str, Any], text: bytes) -> bytes:
    """
    Return the *text* of a CloudEvent; that of an envelope has the beginning by which it is recognized.

    A channel that reads the JSON of events may write their attributes in another order, and with spaces.
    """
    is_known = event.get("specversion") == _VERSION and event.get("type") == EVENT_TYPE
    if not is_known or text.startswith(_BEGINNING):
        return text
    first = {name: event[name] for name in _ATTRIBUTES if name in event}
    return json.dumps(first | event, separators=(",", ":")).encode()


def open_envelope(content: bytes) -> list[Event]:
    """Return the events of an envelope; raises MessageRejected with the number of the event that is at fault."""
    document = read(content)
    entries = document if isinstance(document, list) else [document]
    if not entries:
        raise MessageRejected(_NOT_AN_ENVELOPE, "body is an empty array, expected at least one CloudEvent")
    if len(entries) > MOST_EVENTS:
        problem = f"envelope holds {len(entries)} events, expected at most {MOST_EVENTS}"
        raise MessageRejected("EnvelopeTooLarge", problem)
    return [_event(entry, number) for number, entry in enumerate(entries)]


def _event(entry: Any, number: int) -> Event:  # noqa: ANN401 - JSON
    if not isinstance(entry, dict):
        raise MessageRejected(_NOT_AN_ENVELOPE, f"event {number} is not a JSON object, expected a CloudEvent")
    expected = {"specversion": _VERSION, "type": EVENT_TYPE, "datacontenttype": CONTENT_TYPE}
    for name, value in expected.items():
        if entry.get(name) != value:
            raise MessageRejected(_NOT_AN_ENVELOPE, f"event {number}: {name} is not {value!r}")
    for name in ("source", "id", "sourcekind", "data_base64"):
        # A message without sections has no bytes.
        if not isinstance(entry.get(name), str) or not (entry[name] or name == "data_base64"):
            raise MessageRejected(_NOT_AN_ENVELOPE, f"event {number}: {name} is missing or no text")
    try:
        data = base64.b64decode(entry["data_base64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise MessageRejected(_NOT_AN_ENVELOPE, f"event {number}: data_base64 is not base64") from error
    if entry["sourcekind"] not in KINDS:
        raise MessageRejected(_NOT_AN_ENVELOPE, f"event {number}: sourcekind is not {' or '.join(KINDS)}")
    return Event(entry["source"], entry["id"], entry["sourcekind"], data)
