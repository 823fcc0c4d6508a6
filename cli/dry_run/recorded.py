"""
Reads and writes messages in a file, one JSON object per line: written by hand, or saved by `--save`.

Handwritten messages have the format of `busway demo --file` (`cli.demo.message_file`), without a default session, and
may have values that a service would assign.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from cli.demo.property_types import property_value
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


class Recorded(NamedTuple):
    """An encoded message as a service delivers it, and the partition of an event."""

    content: bytes
    partition: str | None = None


def read_messages(file: Path, now: datetime) -> list[Recorded]:
    """Return the messages in *file*; raises ConfigError with every invalid line."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([Problem(str(file), f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text at byte {error.start}"
        raise ConfigError([Problem(str(file), problem, "one JSON object per line")]) from error
    messages: list[Recorded] = []
    problems: list[Problem] = []
    # Not splitlines: JSON strings may contain other line separators of Unicode.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            messages.append(written(json.loads(line), number, now))
        except (ValueError, RecursionError) as error:
            # Neither the decoder's errors nor ours quote the message.
            problems.append(Problem(f"{file}: line {number}", _text_of(error)))
    if not messages and not problems:
        problems.append(Problem(str(file), "has no messages", "one JSON object per line"))
    if problems:
        raise ConfigError(problems)
    return messages


def save(file: Path, messages: Sequence[Recorded]) -> None:
    """Write *messages* unchanged; raises ConfigError."""
    lines = [{"raw": base64.b64encode(each.content).decode(), "partition": each.partition} for each in messages]
    try:
        write_private(file, "".join(json.dumps(line) + "\n" for line in lines))
    except OSError as error:
        raise ConfigError([Problem(str(file), f"cannot be written: {error.strerror}")]) from error


def _text_of(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    return f"is not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)


def written(line: object, number: int, now: datetime) -> Recorded:
    """Return the message that a line describes, with a number and time of its own; raises ValueError."""
    if not isinstance(line, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 - the line is at fault
    known = _RAW_KEYS if "raw" in line else _KEYS
    unknown = sorted(line.keys() - {*known})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}, expected {', '.join(known)}")
    partition = _text(line, "partition")
    if "raw" in line:
        return Recorded(_received(_bytes(line, "raw"), number, now), partition)
    message = Message(Sections(), Arrival(_ANYWHERE))
    if "body" in line or "body_base64" in line:
        message.body = _body(line)
    for name in _IDS:
        identity = _text(line, name)
        if identity is not None:
            setattr(message, name, string(identity))
    for name in _TEXTS:
        text = _text(line, name)
        if text is not None:
            setattr(message, name, text)
    key = _text(line, "partition_key")
    if key is not None:
        message.set_annotations({"x-opt-partition-key": string(key)})
    message.time_to_live = _number(line, "time_to_live")
    message.set_properties(_properties(line.get("properties", {})))
    return Recorded(_arrived(message, line, number, now), partition)


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


def _arrived(message: Message, line: Mapping[str, object], number: int, now: datetime) -> bytes:
    sequence_number, enqueued = _number(line, "sequence_number"), _number(line, "enqueued_time")
    given: dict[str, Value | None] = {
        "x-opt-sequence-number": long(number if sequence_number is None else sequence_number),
        "x-opt-enqueued-time": timestamp(round(now.timestamp() * 1000) if enqueued is None else enqueued),
    }
    message.set_annotations(given)
    return message.encode()


def _text(line: Mapping[str, object], key: str) -> str | None:
    value = line.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected text")  # noqa: TRY004 - the line is at fault
    return value


def _number(line: Mapping[str, object], key: str) -> int | None:
    value = line.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST[key]:
        raise ValueError(f"{key}: expected a whole number from 0 to {_LARGEST[key]}")
    return value


def _body(line: Mapping[str, object]) -> bytes:
    if "body" not in line:
        return _bytes(line, "body_base64")
    if "body_base64" in line:
        raise ValueError("has body and body_base64, expected one of them")
    content = line["body"]
    text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def _bytes(line: Mapping[str, object], key: str) -> bytes:
    encoded = line[key]
    try:
        return base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{key}: expected Base64 text") from error


def _properties(content: object) -> dict[str, Value | None]:
    if not isinstance(content, dict):
        raise ValueError("properties: expected an object")  # noqa: TRY004 - the line is at fault
    found: dict[str, Value | None] = {}
    for name, value in content.items():
        try:
            found[name] = property_value(value)
        except ValueError as error:
            raise ValueError(f"properties: {name}: {error}") from error
    return found
