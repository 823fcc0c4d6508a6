"""
The messages of a dry run: of a task's source, read without receiving them, or of a file with a JSON object per line.

A file is written by hand, or saved by `--save`. Handwritten messages may have values that a service would assign.
"""

import base64
import contextlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from cli.composed import composed
from cli.explorer_file import as_line, explorer_messages
from cli.hub_reader import ends_of, events, hub_of
from cli.message_file import Line, body_in, bytes_in, check_keys, properties_in, read_messages_in, text_in
from shared.amqp.values import Value, long, timestamp
from shared.errors import ConfigError, MessageRejected, Problem
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.private_file import write_private
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.places import place_at
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

_TEXTS = ("message_id", "correlation_id", "session_id", "subject", "content_type", "content_encoding", "to", "reply_to")
_NUMBERS = ("time_to_live", "sequence_number", "enqueued_time")
_KEYS = (*_TEXTS, *_NUMBERS, "partition_key", "partition", "body", "body_base64", "properties")
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
        content = bytes_in(line, "raw")
        with contextlib.suppress(MessageRejected):  # invalid content is tried too
            message = Message.received(content, _ANYWHERE)
            if message.arrival.sequence_number is None:  # as a sender has encoded it
                content = _arrived(message, {}, number, now)
        return RecordedMessage(content, partition)
    body = body_in(line)
    texts = {name: text_in(line, name) for name in (*_TEXTS, "partition_key")}
    message = composed(body, properties_in(line), time_to_live=_number(line, "time_to_live"), **texts)
    return RecordedMessage(_arrived(message, line, number, now), partition)


def arrived(message: Message, number: int, now: datetime) -> bytes:
    """Return *message* as a service would deliver it."""
    return _arrived(message, {}, number, now)


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


_WAIT_SECONDS = 10.0


async def source_messages(
    configuration: Configuration, task: TaskFile, count: int, settings: Mapping[str, str], *, consumer_group: str
) -> list[RecordedMessage]:
    """
    Return the first *count* messages of a task's source, or the last *count* events of a hub.

    Raises ConfigError for an invalid app setting, TargetUnavailable and TargetRefused if the service fails.
    """
    source = task.source
    if source.hub is not None:
        return await _last_events(configuration, task, count, settings, consumer_group)
    found: list[RecordedMessage] = []
    place = place_at(source.connection, source.entity, configuration)
    async with contextlib.aclosing(peek(place, settings)) as letters:
        async for letter, message in letters:
            # The entity would deliver no others.
            if message.is_active:
                found.append(RecordedMessage(letter.content))
            if len(found) == count:
                break
    return found


async def _last_events(
    configuration: Configuration, task: TaskFile, count: int, settings: Mapping[str, str], consumer_group: str
) -> list[RecordedMessage]:
    """Return the last events of the partitions that the task reads, ordered by time and within each partition."""
    place = Origin(configuration.site(task.source.connection), task.source.entity)
    wanted = None if task.source.partitions is None else {str(partition) for partition in task.source.partitions}
    hub = hub_of(configuration, task, settings, consumer_group)
    found: list[tuple[int, int, RecordedMessage]] = []
    try:
        for partition, end in (await ends_of(configuration, task, settings)).items():
            if not end.is_empty and (wanted is None or partition in wanted):
                after = max(end.first - 1, end.last - count)
                here, letters = place._replace(partition=partition), list[Letter]()
                pages = events(hub, here, after, _WAIT_SECONDS, most=end.last - after)
                async with contextlib.aclosing(pages):
                    async for page in pages:
                        letters += page
                        if len(letters) >= end.last - after:
                            break
                found += [
                    (letter.enqueued_time or 0, index, RecordedMessage(letter.content, partition))
                    for index, letter in enumerate(letters[: end.last - after])
                ]
    finally:
        await hub.close()
    return [recorded for _, _, recorded in sorted(found, key=lambda each: each[:2])[-count:]]
