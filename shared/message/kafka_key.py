"""
The key of a Kafka record on a message: the partition key has it, so that what has one key stays in order.

Event Hubs shows the key of a Kafka producer to AMQP readers in the annotation `x-opt-kafka-key`, as bytes, and never
makes it the partition key (azure-sdk-for-python 18460, azure-event-hubs-for-kafka 114). Azure's host can pass no bytes
in an annotation or property to a function, so the key is text here.
"""

import base64
import binascii
from hashlib import blake2b

from shared.amqp import map_section
from shared.amqp.values import Value, string
from shared.message.message import Message

ANNOTATION = "x-opt-kafka-key"
KEY = "kafka-key"
"""The property with a key that Event Hubs does not take as a partition key."""
# Not `repl-encoding-kafka-key`: the way into a hub would make it binary again, which Azure's host cannot pass.
_ENCODING = f"{KEY}-encoding"
_BASE64 = "base64"
_LONGEST_PARTITION_KEY = 128  # Event Hubs, in characters
_PARTITION_KEY = "x-opt-partition-key"


def restore_key(message: Message) -> None:
    """Make the Kafka key of an event its partition key, unless it has one."""
    key = message.annotation(ANNOTATION)
    changes: dict[str, Value | None] = {ANNOTATION: None}
    payload = None if key is None else key.payload
    content = payload.encode() if isinstance(payload, str) else payload
    if isinstance(content, bytes) and message.annotation(_PARTITION_KEY) is None:
        changes[_PARTITION_KEY], kept = partition_key_of(content)
        if kept:
            message.set_properties(kept)
    message.set_annotations(changes)


def partition_key_of(key: bytes) -> tuple[Value, dict[str, Value]]:
    """
    Return the partition key for a Kafka key, and the properties that keep a key which Event Hubs does not take as one.

    Equal keys have equal partition keys. A key that is empty, too long or not UTF-8 is replaced by its hash.
    """
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return _hash_of(key), {KEY: string(base64.b64encode(key).decode()), _ENCODING: string(_BASE64)}
    if 0 < len(text) <= _LONGEST_PARTITION_KEY:
        return string(text), {}
    return _hash_of(key), {KEY: string(text)}


def kafka_key_of(partition_key: str | None, application_properties: bytes) -> bytes | None:
    """Return the Kafka key that `partition_key_of` made *partition_key* of; empty texts are no key."""
    if not partition_key:
        return None
    kept = map_section.entry(application_properties, KEY) if KEY.encode() in application_properties else None
    if kept is not None and isinstance(kept.payload, str):
        encoding = map_section.entry(application_properties, _ENCODING)
        try:
            key = kept.payload.encode() if encoding is None else base64.b64decode(kept.payload, validate=True)
        except (binascii.Error, ValueError):
            return partition_key.encode()
        if _hash_of(key).payload == partition_key:
            return key
    return partition_key.encode()


def _hash_of(key: bytes) -> Value:
    return string(blake2b(key, digest_size=16).hexdigest())
