"""The properties of a message for rules, read from and written to its bytes."""

from dataclasses import replace
from functools import cached_property

from busway_broker.core.content import NULL, Content
from shared.amqp import map_section
from shared.amqp.codec import decode, encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections, fields_of, split
from shared.amqp.values import Value, boolean, int_, long, string, symbol, timestamp, uint, ulong
from shared.rules.errors import RuleEvaluationError

_FIELDS = {
    "MessageId": 0,
    "To": 2,
    "Subject": 3,
    "ReplyTo": 4,
    "CorrelationId": 5,
    "ContentType": 6,
    "SessionId": 10,
    "ReplyToSessionId": 12,
}
_ANNOTATIONS = {
    "PartitionKey": "x-opt-partition-key",
    "ViaPartitionKey": "x-opt-via-partition-key",
    "ScheduledEnqueueTimeUtc": "x-opt-scheduled-enqueue-time",
}
_ANNOTATIONS_PREFIX = b"\x00\x53\x72"
_PROPERTIES_PREFIX = b"\x00\x53\x73"
_APPLICATION_PROPERTIES_PREFIX = b"\x00\x53\x74"


class RuleProperties:
    """
    The properties of one copy of a message while the rules of a subscription process it.

    `content()` has the changes of actions; the session id and partition key that place the copy in this subscription
    stay the sender's.
    """

    def __init__(self, content: Content, sequence_number: int, enqueued_time: int) -> None:
        """Read *content*; the topic has assigned the number and the time in milliseconds."""
        self._content = content
        self._enqueued_time = enqueued_time
        self._assigned = {
            "DeliveryCount": int_(0),
            "EnqueuedSequenceNumber": long(sequence_number),
            "EnqueuedTimeUtc": timestamp(enqueued_time),
            "SequenceNumber": long(sequence_number),
            "Size": long(content.size),
            "State": int_(0),
        }
        self._names: map_section.Names | None = None
        self._is_changed = False

    @cached_property
    def _sections(self) -> Sections:
        return split(self._content.bare)

    def system(self, name: str) -> Value | None:
        """Return a system property by its canonical name, None if it is not set."""
        time_to_live = self._content.time_to_live
        if name in _FIELDS:
            fields, number = fields_of(self._sections.properties), _FIELDS[name]
            return _value(fields[number]) if number < len(fields) else None
        if name in _ANNOTATIONS:
            value = map_section.entry(self._annotations(), _ANNOTATIONS[name])
            return None if value is None or value.payload is None else value
        if name == "TimeToLive":
            return None if time_to_live is None else (uint if time_to_live < 2**32 else ulong)(time_to_live)
        if name == "ForcePersistence":
            return _value(self._content.header)
        if name == "ExpiresAtUtc" and time_to_live is not None:
            return timestamp(self._enqueued_time + time_to_live)
        return self._assigned.get(name)

    def user(self, name: str) -> Value | None:
        """
        Return the application property whose name in lower case is *name*.

        Raises RuleEvaluationError if the message has the name in two spellings.
        """
        try:
            found = self._named().find(name)
        except map_section.AmbiguousName as error:
            text = f"property {name} has two spellings that differ in case, expected one"
            raise RuleEvaluationError(text) from error
        return None if found is None else _value(self._sections.application_properties, found[1])

    def set_system(self, name: str, value: Value) -> None:
        """Set a system property."""
        self._set(name, value)

    def remove_system(self, name: str) -> None:
        """Unset a system property."""
        self._set(name, None)

    def _set(self, name: str, value: Value | None) -> None:
        payload = None if value is None else value.payload
        if name in _FIELDS:
            if name == "ContentType" and isinstance(payload, str) and payload.isascii():
                value = symbol(payload)
            fields, number = [*fields_of(self._sections.properties)], _FIELDS[name]
            fields += [NULL] * (number + 1 - len(fields))
            fields[number] = NULL if value is None else encode(value)
            self._sections.properties = join_list(_PROPERTIES_PREFIX, fields)
            self._is_changed = True
        elif name in _ANNOTATIONS:
            section = map_section.edited(self._annotations(), _ANNOTATIONS_PREFIX, {_ANNOTATIONS[name]: value}, symbol)
            count, start, stop = map_section.content(section) if section else (0, 0, 0)
            self._content = replace(self._content, annotations=section[start:stop], annotation_count=count // 2)
        elif name == "TimeToLive" and isinstance(payload, int | None):
            self._content = replace(self._content, time_to_live=payload)
        elif name == "ForcePersistence":
            header = self._content.header
            durable = NULL if value is None else encode(boolean(bool(payload)))
            self._content = replace(self._content, header=durable + header[decode(header)[1] :])

    def set_user(self, name: str, value: Value) -> None:
        """Set an application property, keeping the spelling of one that is there; other spellings are removed."""
        spellings = self._named().spellings(name.lower())
        self._set_users({spellings[0] if spellings else name: value})

    def remove_user(self, name: str) -> None:
        """Remove the application properties of this name in any case."""
        spellings = self._named().spellings(name.lower())
        if spellings:
            self._set_users({spellings[0]: None})

    def _set_users(self, changes: dict[str, Value | None]) -> None:
        section = self._sections.application_properties
        changed = map_section.edited(section, _APPLICATION_PROPERTIES_PREFIX, changes, string, in_any_case=True)
        self._sections.application_properties = changed
        self._names, self._is_changed = None, True

    def _named(self) -> map_section.Names:
        if self._names is None:
            self._names = map_section.Names(self._sections.application_properties)
        return self._names

    def _annotations(self) -> bytes:
        return join_map(_ANNOTATIONS_PREFIX, [self._content.annotations], self._content.annotation_count)

    def content(self) -> Content:
        """Return the copy's content; unchanged sections keep the sender's bytes."""
        return replace(self._content, bare=self._sections.encode()) if self._is_changed else self._content


def _value(encoded: bytes, position: int = 0) -> Value | None:
    value, _ = decode(encoded, position)
    return None if value.payload is None else value
