"""
Gives messages ids before they are sent, so that a retry sends the same id; nothing else changes.

A message without an id gets a random one, which is stored on the caller's object, so that sending the object again
sends the same id. (A ServiceBusMessage always has one: the SDK sets a random id.) An id derived only from the content
would turn two intentionally equal messages into duplicates. With a key, every id is derived from the key and the
content, so that a message that is created again, for example after a restart, gets the same id.
"""

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from busway_clients.errors import WrongUse
from busway_clients.senders.serialization import freeze, parts
from busway_clients.stamps import decoded, text_of, text_properties

SdkMessage = ServiceBusMessage | AmqpAnnotatedMessage
Message = SdkMessage | Mapping[str, Any]
Messages = Message | Iterable[Message]
SessionOf = Callable[[AmqpAnnotatedMessage], str | None]

SCHEDULED = b"x-opt-scheduled-enqueue-time"
_PARTITION = b"x-opt-partition-key"
_LONGEST_ID = 128
# A tuple: a union would be created again for every message.
_SDK_MESSAGES = (ServiceBusMessage, AmqpAnnotatedMessage)
# The properties that two sends of the same content share; times and delivery counts differ.
_CONTENT_PROPERTIES = ("group_id", "subject", "correlation_id", "content_type", "to", "reply_to", "reply_to_group_id")
# Application properties that the SDK adds to a message when the application is traced.
_TRACES = ("Diagnostic-Id", "traceparent", "tracestate")


class OutgoingMessage(NamedTuple):
    """A message with its id: *message* is passed to the SDK, *raw* is its AMQP message."""

    message_id: str
    message: SdkMessage

    @property
    def raw(self) -> AmqpAnnotatedMessage:
        """Return the AMQP message."""
        return raw_of(self.message)

    @property
    def session_id(self) -> str | None:
        """Return the session id, None without one."""
        properties = self.raw.properties
        return text_of(properties.group_id) if properties and properties.group_id else None

    @property
    def lane(self) -> str | None:
        """Return the key within which order is kept: the session id, else the partition key, else None."""
        if self.session_id is not None:
            return self.session_id
        key = annotation(self.raw, _PARTITION)
        return None if key is None else text_of(key)


def with_ids(messages: Messages, key: str | None = None, session_of: SessionOf | None = None) -> list[OutgoingMessage]:
    """
    Return *messages* with ids, in their order; a single message becomes a list of one.

    Raises WrongUse for an object that is not a message, and for an id that Service Bus would refuse.
    """
    if key is not None and not key:
        raise WrongUse("key of a send: is empty, expected text that a retry passes again")
    seen: dict[bytes, int] = {}
    if isinstance(messages, _SDK_MESSAGES):
        return [_with_id(messages, key, session_of, seen)]
    if isinstance(messages, ServiceBusMessageBatch):
        raise WrongUse("messages to send: got a ServiceBusMessageBatch, expected the messages themselves")
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes):
        raise WrongUse(f"messages to send: got a {type(messages).__name__}, expected one message or several")
    given = [messages] if isinstance(messages, Mapping) else messages
    return [_with_id(each, key, session_of, seen) for each in given]


def raw_of(message: SdkMessage) -> AmqpAnnotatedMessage:
    """Return the AMQP message of a message."""
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


def copy_of(message: SdkMessage) -> AmqpAnnotatedMessage:
    """Return a copy that the SDK can encode concurrently; parts that it only reads are shared."""
    raw = raw_of(message)
    # Faster than copy.copy: copying is most of the cost that an active send adds to a plain one.
    copied: AmqpAnnotatedMessage = object.__new__(type(raw))
    vars(copied).update(vars(raw))
    if raw.application_properties:
        copied.application_properties = dict(raw.application_properties)
    if raw.annotations:
        copied.annotations = dict(raw.annotations)
    return copied


def delayed(
    message: AmqpAnnotatedMessage, delay: timedelta, now: datetime, previous: datetime | None
) -> datetime | None:
    """
    Schedule a message *delay* later than it would be enqueued, and return *previous* for the next message.

    Its time is always after *previous*, since messages that are due in the same millisecond may be enqueued in any
    order. A time that the application has set is only delayed.
    """
    annotations = message.annotations or {}
    scheduled = annotations.pop(SCHEDULED.decode(), None) or annotations.get(SCHEDULED)
    due = (scheduled if isinstance(scheduled, datetime) else now) + delay
    if previous is not None and scheduled is None:
        due = max(due, previous + timedelta(milliseconds=1))
    message.annotations = {**annotations, SCHEDULED: due}
    return due if scheduled is None else previous


def annotation(message: AmqpAnnotatedMessage, name: bytes) -> object:
    """Return a message annotation, whose name may be stored as text or bytes."""
    held = message.annotations or {}
    return held.get(name, held.get(name.decode()))


def _with_id(given: object, key: str | None, session_of: SessionOf | None, seen: dict[bytes, int]) -> OutgoingMessage:
    message = given if isinstance(given, _SDK_MESSAGES) else _from_mapping(given)
    raw = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    properties = raw.properties
    if properties is None:
        properties = raw.properties = AmqpMessageProperties()
    if session_of is not None and not properties.group_id:
        properties.group_id = _session(raw, session_of)
    if key is not None:
        properties.message_id = _derived_id(key, raw, seen)
    elif not properties.message_id:
        if isinstance(given, Mapping) and not isinstance(given, MutableMapping):
            raise WrongUse("a message given as an immutable mapping: has no message_id, expected a message_id or a key")
        properties.message_id = str(uuid.uuid4())
    message_id = properties.message_id
    if not isinstance(message_id, str):
        message_id = text_of(message_id)
    if len(message_id) > _LONGEST_ID:
        raise _too_long("message id", message_id)
    if message is not given and isinstance(given, MutableMapping):
        given["message_id"] = properties.message_id
        if properties.group_id:
            given["session_id"] = properties.group_id
    return OutgoingMessage(message_id, message)


def _from_mapping(given: object) -> SdkMessage:
    if not isinstance(given, Mapping):
        raise WrongUse(f"a message: got a {type(given).__name__}, expected a ServiceBusMessage or AmqpAnnotatedMessage")
    try:
        return ServiceBusMessage(**given)
    except (TypeError, ValueError) as error:
        raise WrongUse(f"a message given as a mapping: is invalid, {error}") from error


def _session(raw: AmqpAnnotatedMessage, session_of: SessionOf) -> str | None:
    try:
        session: object = session_of(raw)
    except Exception as error:
        raise WrongUse(f"session_of: raised {type(error).__name__}, expected a session id or None") from error
    if session is None or session == "":
        return None
    if not isinstance(session, str):
        raise WrongUse(f"session_of: returned a {type(session).__name__}, expected text or None")
    if len(session) > _LONGEST_ID:
        raise _too_long("session id", session)
    return session


def _derived_id(key: str, raw: AmqpAnnotatedMessage, seen: dict[bytes, int]) -> str:
    """Return the id of a message with *key*; *seen* counts equal contents of one call, which get different ids."""
    properties = dict(raw.properties.items()) if raw.properties else {}
    content = {name: value for name, value in parts(raw).items() if name.endswith("body")}
    given = text_properties(raw.application_properties)
    content["application_properties"] = {name: value for name, value in given.items() if name not in _TRACES}
    content["properties"] = {name: decoded(properties.get(name)) for name in _CONTENT_PROPERTIES}
    digest = hashlib.sha256(freeze(content)).digest()
    seen[digest] = seen.get(digest, 0) + 1
    return hashlib.sha256(b"\0".join([key.encode(), digest, b"%d" % seen[digest]])).hexdigest()[:32]


def _too_long(what: str, text: str) -> WrongUse:
    return WrongUse(f"a message's {what}: has {len(text)} characters, expected at most {_LONGEST_ID}")
