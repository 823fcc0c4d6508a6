"""A message as the rules of Service Bus read and change it."""

from collections.abc import Callable

from shared.amqp import map_section, sections
from shared.amqp.codec import decode, encode
from shared.amqp.values import Value, int_, long, string, timestamp, uint, ulong
from shared.message.message import Message
from shared.rules.properties import SYSTEM_PROPERTIES

SYSTEM = "sys."
"""How the names of broker properties begin in tasks."""
_DELIVERY_COUNT = 4
_LARGEST_INT = 2**31 - 1


class RuleProperties:
    """A message as rules read and change it (`shared.rules.properties.MutableProperties`)."""

    def __init__(self, message: Message) -> None:
        """Take *message*; its properties are read when a rule first asks for one."""
        self._message = message
        self._seen: map_section.Names | None = None
        self._values: dict[str, Value | None] = {}

    def system(self, name: str) -> Value | None:
        """Return a system property by its canonical name, None when it is not set."""
        read = _READ.get(name)
        return None if read is None else read(self._message)

    def user(self, name: str) -> Value | None:
        """
        Return the application property whose lower-case name is *name*, None if it is missing.

        Raises AmbiguousName if the message has the name in two spellings.
        """
        values = self._values
        if name in values:
            return values[name]
        found = self._names().find(name)
        section = self._message.sections.application_properties
        value = values[name] = None if found is None else decode(section, found[1])[0]
        return value

    def named(self, name: str) -> Value | None:
        """Return a property by its *name* in a task: `sys.` and an existing broker property, or an application's."""
        lower = name.lower()
        if lower.startswith(SYSTEM):
            return self.system(SYSTEM_PROPERTIES[lower.removeprefix(SYSTEM)].name)
        return self.user(lower)

    def set_system(self, name: str, value: Value) -> None:
        """Set a system property of a type that the rule language has checked."""
        _WRITE[name](self._message, value)

    def remove_system(self, name: str) -> None:
        """Unset a system property."""
        _WRITE[name](self._message, None)

    def set_user(self, name: str, value: Value) -> None:
        """Set an application property and keep the spelling of an existing one; other spellings are removed."""
        spellings = self._names().spellings(name.lower())
        if spellings:
            self._message.set_properties({spellings[0]: value})
        else:
            self._message.append_properties(encode(string(name)) + encode(value), 1)
        self._forget()

    def remove_user(self, name: str) -> None:
        """Remove the application properties of this name in any case."""
        spellings = self._names().spellings(name.lower())
        if spellings:
            self._message.set_properties({spellings[0]: None})
            self._forget()

    def _forget(self) -> None:
        """Drop what was read: the section has changed."""
        self._seen = None
        self._values = {}

    def _names(self) -> map_section.Names:
        if self._seen is None:
            self._seen = map_section.Names(self._message.sections.application_properties)
        return self._seen


def _as_string(text: str | None) -> Value | None:
    return None if text is None else string(text)


def _as[T](constructor: Callable[[T], Value], payload: T | None) -> Value | None:
    return None if payload is None else constructor(payload)


def milliseconds(life: int) -> Value:
    """Return a time to live, which has more than 32 bits if it is longer than 49.7 days."""
    return uint(life) if life < 2**32 else ulong(life)


def _deliveries(message: Message) -> int | None:
    """Return the number of its deliveries, with this one; None for an event, of which the service counts none."""
    if message.arrival.origin.partition is not None:
        return None
    fields = sections.fields_of(message.sections.header)
    earlier = decode(fields[_DELIVERY_COUNT])[0].payload if len(fields) > _DELIVERY_COUNT else 0
    return min(1 + earlier, _LARGEST_INT) if isinstance(earlier, int) else 1


def _expiry(message: Message) -> int | None:
    life, enqueued = message.time_to_live, message.arrival.enqueued_time
    return None if life is None or enqueued is None else enqueued + life


def _set_annotation(name: str) -> Callable[[Message, Value | None], None]:
    return lambda message, value: message.set_annotations({name: value})


def _set_text(attribute: str) -> Callable[[Message, Value | None], None]:
    return lambda message, value: setattr(message, attribute, None if value is None else value.payload)


def _set_value(attribute: str) -> Callable[[Message, Value | None], None]:
    return lambda message, value: setattr(message, attribute, value)


_READ: dict[str, Callable[[Message], Value | None]] = {
    "MessageId": lambda message: message.message_id,
    "CorrelationId": lambda message: message.correlation_id,
    "To": lambda message: _as_string(message.to),
    "Subject": lambda message: _as_string(message.subject),
    "ReplyTo": lambda message: _as_string(message.reply_to),
    "ContentType": lambda message: _as_string(message.content_type),
    "SessionId": lambda message: _as_string(message.session_id),
    "ReplyToSessionId": lambda message: _as_string(message.reply_to_session_id),
    "PartitionKey": lambda message: _as_string(message.partition_key),
    "TimeToLive": lambda message: _as(milliseconds, message.time_to_live),
    "DeliveryCount": lambda message: _as(int_, _deliveries(message)),
    "ExpiresAtUtc": lambda message: _as(timestamp, _expiry(message)),
    "EnqueuedTimeUtc": lambda message: _as(timestamp, message.arrival.enqueued_time),
    "LockedUntilUtc": lambda message: _as(timestamp, message.arrival.locked_until),
    "SequenceNumber": lambda message: _as(long, message.arrival.sequence_number),
    "DeadLetterSource": lambda message: _as_string(message.arrival.dead_letter_source),
    "ForcePersistence": lambda message: message.durable,
    "ScheduledEnqueueTimeUtc": lambda message: message.annotation("x-opt-scheduled-enqueue-time"),
    "ViaPartitionKey": lambda message: message.annotation("x-opt-via-partition-key"),
    "Size": lambda message: long(message.size),
}

_WRITE: dict[str, Callable[[Message, Value | None], None]] = {
    "MessageId": _set_value("message_id"),
    "CorrelationId": _set_value("correlation_id"),
    "To": _set_text("to"),
    "Subject": _set_text("subject"),
    "ReplyTo": _set_text("reply_to"),
    "ContentType": _set_text("content_type"),
    "SessionId": _set_text("session_id"),
    "ReplyToSessionId": _set_text("reply_to_session_id"),
    "TimeToLive": _set_text("time_to_live"),
    "ForcePersistence": _set_value("durable"),
    "PartitionKey": _set_annotation("x-opt-partition-key"),
    "ViaPartitionKey": _set_annotation("x-opt-via-partition-key"),
    "ScheduledEnqueueTimeUtc": _set_annotation("x-opt-scheduled-enqueue-time"),
}
