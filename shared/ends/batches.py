"""Cutting encoded messages into batches that fit a link, and encoding the batches."""

from collections.abc import Iterable, Sequence

from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map, map_entries
from shared.amqp.sections import data, descriptor, split
from shared.amqp.values import NULL, string, symbol
from shared.protocols import Outgoing

# A data section in a batch: descriptor, format code and length, the latter of one or four bytes.
_SHORT_OVERHEAD = 5
_LONG_OVERHEAD = 8
_SHORT_LENGTH = 255
# The batch's own properties repeat id, session and partition key of its first message, each at most 128 characters.
_ENVELOPE = 1024
_MESSAGE_ANNOTATIONS, _PROPERTIES = b"\x00\x53\x72", b"\x00\x53\x73"
_PARTITION_KEY = encode(symbol("x-opt-partition-key"))
_NULL = encode(NULL)
LARGEST_PROPERTY = 32 * 1024
"""Bytes of one application property that Service Bus stores; NServiceBus.Transport.AzureServiceBus issue 171."""
_BETWEEN_ID_AND_SESSION = 9


def split_by_size(messages: Sequence[Outgoing], limit: int, most: int | None = None) -> list[Sequence[Outgoing]]:
    """
    Return *messages* in runs that each fit a batch of *limit* bytes and *most* messages.

    A larger message is a run of its own.
    """
    chunks: list[Sequence[Outgoing]] = []
    start, size = 0, _ENVELOPE
    for index, message in enumerate(messages):
        cost = len(message.content) + _LONG_OVERHEAD
        if index > start and (size + cost > limit or index - start == most):
            chunks.append(messages[start:index])
            start, size = index, _ENVELOPE
        size += cost
    chunks.append(messages[start:])
    return chunks


def largest_property(content: bytes) -> tuple[str, int]:
    """Return the name of the application property that has the most bytes, and their number; 0 if none has many."""
    if len(content) <= LARGEST_PROPERTY:
        return "", 0
    section = split(content).application_properties
    if len(section) <= LARGEST_PROPERTY:
        return "", 0
    entries = map_entries(section, descriptor(section, 0)[1], len(section))
    length, name = max((stop - start, str(key)) for key, _, start, stop in entries)
    return name, length


def envelope_of(first: Outgoing) -> bytes:
    """Return the sections of a batch before its messages: what it repeats of the *first* one."""
    annotations = properties = b""
    if first.partition_key:
        annotations = join_map(_MESSAGE_ANNOTATIONS, [_PARTITION_KEY + encode(string(first.partition_key))], 1)
    if first.message_id or first.session_id is not None:
        fields = [_text(first.message_id), *[_NULL] * _BETWEEN_ID_AND_SESSION, _text(first.session_id)]
        properties = join_list(_PROPERTIES, fields)
    return annotations + properties


def batch_size(envelope: bytes, content: bytes) -> int:
    """Return the size in bytes of a batch with one encoded message."""
    overhead = _SHORT_OVERHEAD if len(content) <= _SHORT_LENGTH else _LONG_OVERHEAD
    return len(envelope) + overhead + len(content)


def encode_batch(envelope: bytes, contents: Iterable[bytes]) -> bytes:
    """Return a batch of encoded messages, each of which is a data section of it."""
    return b"".join((envelope, *map(data, contents)))


def _text(value: str | None) -> bytes:
    return _NULL if value is None else encode(string(value))
