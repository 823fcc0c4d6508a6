"""
Reads and writes messages in a file, one JSON object per line: written by hand, or saved by `--save`.

Handwritten messages may have values that a service would assign.
"""

import base64
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from cli.explorer_file import as_line, explorer_messages
from cli.message_file import Line, body_in, bytes_in, check_keys, properties_in, read_messages_in, text_in
from shared.amqp.sections import Sections
from shared.amqp.values import Value, long, string, timestamp
from shared.errors import ConfigError, MessageRejected, Problem
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.private_file import write_private

_TEXTS = ("session_id", "subject", "content_type", "content_encoding", "to", "reply_to")
_IDS = ("message_id", "correlation_id")
_NUMBERS = ("time_to_live", "sequence_number", "enqueued_time")
_KEYS = (*_IDS, *_TEXTS, *_NUMBERS, "partition_key", "partition", "body", "body_base64", "properties")
# The last one is written by `busway dead export`, for people and for `busway dead drop`.
_RAW_KEYS = ("raw", "partition", "dead_letter")
_LAST_TIME = 253_402_300_799_999  # the year 9999
_LARGEST = {"time_to_live": 2**32 - 1, "sequence_number": 2**63 - 1, "enqueued_time": _LAST_TIME}
_ANYWHERE = Origin("", "")


class RecordedMessage(NamedTuple):
    """An encoded message as a service delivers it, and the partition of an event."""

    content: bytes
    partition: str | None = None


def read_messages(file: Path, now: datetime) -> list[RecordedMessage]:
    """Return the messages in *file*, or in one of ServiceBusExplorer; raises ConfigError with every invalid line."""
    saved = explorer_messages(file)
    if saved is not None:
        try:
            return [written(as_line(each), number, now) for number, each in enumerate(saved, 1)]
        except ValueError as error:
            raise ConfigError([Problem(str(file), f"is a file of ServiceBusExplorer: {error}")]) from error
    return read_messages_in(file, lambda line, number: written(line, number, now))


def save(file: Path, messages: Sequence[RecordedMessage]) -> None:
    """Write *messages* unchanged; raises ConfigError."""
    lines = [
        {"raw": base64.b64encode(message.content).decode(), "partition": message.partition} for message in messages
    ]
    try:
        write_private(file, "".join(json.dumps(line) + "\n" for line in lines))
    except OSError as error:
        raise ConfigError([Problem(str(file), f"cannot be written: {error.strerror}")]) from error


def written(line: Line, number: int, now: datetime) -> RecordedMessage:
    """Return the message that a line describes, with a number and time of its own; raises ValueError."""
    check_keys(line, _RAW_KEYS if "raw" in line else _KEYS)
    partition = text_in(line, "partition")
    if "raw" in line:
        return RecordedMessage(_received(bytes_in(line, "raw"), number, now), partition)
    message = Message(Sections(), Arrival(_ANYWHERE))
    body = body_in(line)
    if body is not None:
        message.body = body
    for name in _IDS:
        identity = text_in(line, name)
        if identity is not None:
            setattr(message, name, string(identity))
    for name in _TEXTS:
        text = text_in(line, name)
        if text is not None:
            setattr(message, name, text)
    key = text_in(line, "partition_key")
    if key is not None:
        message.set_annotations({"x-opt-partition-key": string(key)})
    message.time_to_live = _number(line, "time_to_live")
    message.set_properties(properties_in(line))
    return RecordedMessage(_arrived(message, line, number, now), partition)


def arrived(message: Message, number: int, now: datetime) -> bytes:
    """Return *message* as a service would deliver it."""
    return _arrived(message, {}, number, now)


def _received(content: bytes, number: int, now: datetime) -> bytes:
    """Return an encoded message with a sequence number, which a message that a sender encoded does not have."""
    try:
        message = Message.received(content, _ANYWHERE)
        return content if message.arrival.sequence_number is not None else _arrived(message, {}, number, now)
    except MessageRejected:
        # Invalid content is tried too.
        return content


def _arrived(message: Message, line: Line, number: int, now: datetime) -> bytes:
    sequence_number, enqueued = _number(line, "sequence_number"), _number(line, "enqueued_time")
    given: dict[str, Value | None] = {
        "x-opt-sequence-number": long(number if sequence_number is None else sequence_number),
        "x-opt-enqueued-time": timestamp(round(now.timestamp() * 1000) if enqueued is None else enqueued),
    }
    message.set_annotations(given)
    return message.encode()


def _number(line: Line, key: str) -> int | None:
    value = line.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST[key]:
        raise ValueError(f"{key}: expected a whole number from 0 to {_LARGEST[key]}")
    return value
