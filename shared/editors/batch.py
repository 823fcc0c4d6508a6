"""The batch editor: several messages in one envelope."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import Annotated

from pydantic import Field

from shared.amqp import map_section
from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.values import int_, string
from shared.editors.content.envelopes import Entry, Envelope, Format, envelope
from shared.editors.options import AS_WRITTEN, Stateless, Step, Strict, TaskFacts
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.metadata import deterministic_id
from shared.protocols import EditedTogether, Joined
from shared.time_limit import TimeLimit

COUNT = "batch-count"

_APPLICATION_PROPERTIES = b"\x00\x53\x74"
_PROPERTIES = b"\x00\x53\x73"
_PARTITION_KEY = "x-opt-partition-key"
_STAMPS = "repl-"
_NULL = b"\x40"
_MESSAGE_ID = 0


class BatchOptions(Strict):
    """The format and the size of envelopes."""

    format: Format = Field("json-array", alias="as")
    """`json-array` or `json-lines` for JSON bodies, or `avro`: a container of whole messages."""
    max_count: Annotated[int, Field(ge=1, le=100_000)] = 100
    """Largest number of messages in an envelope."""
    max_bytes: Annotated[int, Field(ge=1, le=100 * 1024 * 1024)] = 192 * 1024
    """Largest body of an envelope in bytes; a message that is larger is rejected."""
    within: Annotated[timedelta, Field(strict=False, gt=timedelta()), AS_WRITTEN] | None = None
    """Longest time between the enqueued times of the first and the last message of an envelope."""
    content_type: Annotated[str, Field(pattern=r"^[!-~]+/[ -~]+$")] | None = None
    """Content type of envelopes; by default that of the format."""


class BatchStep(Step):
    """
    Joins messages of one delivery into envelopes.

    The messages of an envelope have the same session, partition key, path and time to live, and stay in order. The
    envelope keeps the properties that all of them share, and has their number in `batch-count`. Its id is computed from
    theirs. When the envelope is sent, all of its messages are completed; when it is rejected, each message is rejected
    separately. An envelope never waits for more messages than one delivery has: set maxMessageBatchSize and
    maxBatchWaitTime in host.json.
    """

    options: BatchOptions = Field(alias="batch")

    def editor(self, task: TaskFacts, /) -> "Batch":
        """Return the editor with these options."""
        return Batch(self.options, task.edit_seconds)


type _Properties = Mapping[str, bytes]


@dataclass
class _Group:
    """An envelope that is being filled: its messages by their index, with their properties."""

    size: int
    members: dict[int, tuple[_Properties, Entry]] = field(default_factory=dict)


class Batch(Stateless):
    """Joins the messages of a delivery into envelopes."""

    name = "batch"
    joins = True

    def __init__(self, options: BatchOptions, edit_seconds: float) -> None:
        """Fill envelopes as *options* say; each message may take *edit_seconds*."""
        self._time_limit = TimeLimit(edit_seconds)
        self._envelope: Envelope = envelope(options.format)
        self._max_count = options.max_count
        self._max_bytes = options.max_bytes
        self._within = None if options.within is None else options.within // timedelta(milliseconds=1)
        self._content_type = options.content_type or self._envelope.media_type

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:  # noqa: ARG002 - no store is used
        """Return each envelope in the place of its first message; the other messages are joined to it."""
        results: list[EditedTogether] = [()] * len(messages)
        filling: dict[object, _Group] = {}
        groups: list[_Group] = []
        for index, found in enumerate(await self._time_limit.each(self._contribution, messages)):
            if isinstance(found, MessageRejected):
                results[index] = found
                continue
            properties, entry, key = found
            group = filling.get(key)
            if group is None or not self._takes(group, entry):
                group = filling[key] = _Group(self._envelope.overhead)
                groups.append(group)
            group.members[index] = properties, entry
            group.size += entry.size
        for group in groups:
            first, *others = group.members
            results[first] = (self._fill(*zip(*group.members.values(), strict=True)),)
            for index in others:
                results[index] = Joined(first)
        return results

    def _contribution(self, message: Message) -> tuple[_Properties, Entry, object]:
        """Return a message's properties, its part of an envelope, and what it has in common with others in one."""
        return _properties(message), self._entry(message), _key(message)

    def _entry(self, message: Message) -> Entry:
        """Return a message's part of an envelope; raises MessageRejected if it is too large."""
        entry = self._envelope.entry(message)
        size = self._envelope.overhead + entry.size
        if size > self._max_bytes:
            problem = f"an envelope with this message alone has {size} bytes, expected at most {self._max_bytes}"
            raise MessageRejected("BodyTooLarge", problem)
        return entry

    def _takes(self, group: _Group, entry: Entry) -> bool:
        if len(group.members) >= self._max_count or group.size + entry.size > self._max_bytes:
            return False
        if self._within is None:
            return True
        (_, earliest), *_ = group.members.values()
        first, last = (each.message.arrival.enqueued_time for each in (earliest, entry))
        return first is not None and last is not None and abs(last - first) <= self._within

    def _fill(self, properties: Sequence[_Properties], entries: Sequence[Entry]) -> Message:
        messages = [entry.message for entry in entries]
        message = messages[0].copy()
        raw = message.sections
        raw.application_properties = _common_properties(properties)
        raw.properties = _common_fields(messages)
        if any(message.sections.message_annotations != raw.message_annotations for message in messages):
            partition_key = message.annotation(_PARTITION_KEY)
            raw.message_annotations = b""
            message.set_annotations({_PARTITION_KEY: partition_key} if partition_key is not None else {})
        raw.footer = b""
        # A new message, because the first one caches what was decoded.
        message = Message(raw, message.arrival)
        message.message_id = string(_identity(messages))
        message.content_type = self._content_type
        message.set_properties({COUNT: int_(len(messages))})
        message.body = self._envelope.joined(entries)
        return message


def _key(message: Message) -> object:
    """Return what the messages of one envelope have in common."""
    path = message.application_property("repl-path")
    return message.session_id, message.partition_key, path, message.time_to_live


def _identity(messages: Sequence[Message]) -> str:
    """Return an id that is the same for the same messages."""
    digest = blake2b(digest_size=16)
    for message in messages:
        fields, arrival = message.property_fields(), message.arrival
        identity = fields[_MESSAGE_ID] if fields else _NULL
        place: object = (arrival.origin, arrival.sequence_number, arrival.enqueued_time)
        if arrival.event is not None:
            place = deterministic_id(arrival)
        digest.update(identity + repr(place).encode())
    return f"batch-{digest.hexdigest()}"


def _properties(message: Message) -> _Properties:
    """Return the application properties with a textual name, encoded."""
    section = message.sections.application_properties
    return {key: section[start:stop] for key, _, start, stop in map_section.entries(section) if key is not None}


def _common_properties(properties: Sequence[_Properties]) -> bytes:
    """Return the application properties that all share, and the stamps of the first one."""
    first = properties[0]
    common: AbstractSet[tuple[str, bytes]] = first.items()
    for each in properties[1:]:
        common = common & each.items()
    kept = {key: value for key, value in first.items() if key.startswith(_STAMPS) or (key, value) in common}
    return join_map(_APPLICATION_PROPERTIES, [encode(string(key)) + value for key, value in kept.items()], len(kept))


def _common_fields(messages: Sequence[Message]) -> bytes:
    """Return the properties section with the fields that all share."""
    rows = [message.property_fields() for message in messages]
    width = max(map(len, rows))
    padded = [[*row, *([_NULL] * (width - len(row)))] for row in rows]
    fields = [column[0] if all(each == column[0] for each in column) else _NULL for column in zip(*padded, strict=True)]
    return join_list(_PROPERTIES, fields) if fields else b""
