"""AMQP messages made from texts: those of storage queues, and events of Event Grid."""

import base64
import binascii
from hashlib import blake2b

from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections, data
from shared.amqp.values import long, string, symbol, timestamp, uint
from shared.errors import MessageRejected
from shared.message.message import Message

MOST_QUEUE_BYTES = 64 * 1024
"""The largest text of a message in a storage queue, as it is sent."""
MOST_EVENT_BYTES = 1024 * 1024 - 2
"""The largest event of Event Grid, in an array of its own."""

_HEADER, _ANNOTATIONS, _PROPERTIES = b"\x00\x53\x70", b"\x00\x53\x72", b"\x00\x53\x73"
_NULL = b"\x40"
_LARGEST_NUMBER = 2**63 - 1
_LARGEST_UINT = 2**32 - 1


def text_message(
    identity: str,
    text: bytes,
    enqueued: int | None,
    expires: int | None,
    deliveries: int,
    *,
    message_id: str | None = None,
    content_type: str | None = None,
) -> bytes:
    """
    Return the message or event *identity* as an encoded AMQP message, whose body is its *text*.

    The message id is the identity unless another one is given. The sequence number, the same at every delivery, is made
    from the identity; it is no order.

    Units: milliseconds since 1970 UTC, *expires* None for never; *deliveries* counts from 1.
    """
    annotations = {"x-opt-sequence-number": long(number_of(identity))}
    if enqueued is not None:
        annotations["x-opt-enqueued-time"] = timestamp(enqueued)
    life = None if expires is None or enqueued is None else expires - enqueued
    fields = [_NULL, _NULL, encode(uint(life)) if life is not None and 0 < life <= _LARGEST_UINT else _NULL]
    fields += [_NULL, encode(uint(max(deliveries - 1, 0)))]
    properties = [encode(string(message_id or identity))]
    if content_type is not None:
        properties += [_NULL] * 5 + [encode(symbol(content_type))]
    pairs = [encode(symbol(name)) + encode(value) for name, value in annotations.items()]
    return Sections(
        header=join_list(_HEADER, fields),
        message_annotations=join_map(_ANNOTATIONS, pairs, len(pairs)),
        properties=join_list(_PROPERTIES, properties),
        body=data(text),
    ).encode()


def event_message(text: bytes, enqueued: int | None, message_id: str, content_type: str) -> bytes:
    """
    Return an event that came to a webhook as an encoded AMQP message.

    Its number is made from the *text*: a publisher chooses source, id and time, so that only an equal text is the same
    event.
    """
    identity = blake2b(text, digest_size=16).hexdigest()
    return text_message(identity, text, enqueued, None, 1, message_id=message_id, content_type=content_type)


def fault_message(text: bytes) -> bytes:
    """Return a message with the *text* of what came among events and is not one; `check_event` rejects it."""
    return text_message(blake2b(text, digest_size=16).hexdigest(), text, None, None, 1)


def check_event(message: Message) -> None:
    """Reject a message of a webhook that is not an event: only events have a content type; raises MessageRejected."""
    if message.arrival.event is None and message.content_type is None:
        raise MessageRejected("InvalidEvent", "it came among events, expected a JSON object with id and source")


def number_of(identity: str) -> int:
    """Return the number of the message with this id: one of 2^63, so that two messages of a day have different ones."""
    return int.from_bytes(blake2b(identity.encode(), digest_size=8).digest()) & _LARGEST_NUMBER or 1


def decode_base64(message: Message) -> None:
    """Replace the body, which another producer has written in base64, by its bytes; raises MessageRejected."""
    if message.arrival.event is not None:
        return
    try:
        # MIME breaks base64 into lines.
        message.body = base64.b64decode((message.body or b"").translate(None, b"\r\n"), validate=True)
    except binascii.Error as error:
        text = "the text is not base64, as `encoding: base64` of the source says"
        raise MessageRejected("NotBase64", text) from error
