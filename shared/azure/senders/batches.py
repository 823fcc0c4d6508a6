"""Cutting encoded messages into batches that fit a link."""

from collections.abc import Sequence

from shared.protocols import Outgoing

# A data section in a batch: descriptor, format code and length, the latter of one or four bytes.
_SHORT_OVERHEAD = 5
_LONG_OVERHEAD = 8
_SHORT_LENGTH = 255
# The batch's own properties repeat id, session and partition key of its first message, each at most 128 characters.
_ENVELOPE = 1024


def split_by_size(messages: Sequence[Outgoing], limit: int) -> list[Sequence[Outgoing]]:
    """Return *messages* in runs that each fit a batch of *limit* bytes; a larger message is a run of its own."""
    chunks: list[Sequence[Outgoing]] = []
    start, size = 0, _ENVELOPE
    for index, message in enumerate(messages):
        cost = len(message.content) + _LONG_OVERHEAD
        if size + cost > limit and index > start:
            chunks.append(messages[start:index])
            start, size = index, _ENVELOPE
        size += cost
    chunks.append(messages[start:])
    return chunks


def batch_size(message: Outgoing) -> int:
    """Return the size in bytes of a batch with only *message*."""
    length = len(message.content)
    overhead = _SHORT_OVERHEAD if length <= _SHORT_LENGTH else _LONG_OVERHEAD
    repeated = (message.message_id, message.session_id, message.partition_key)
    return length + overhead + sum(len(text or "") + _SHORT_OVERHEAD for text in repeated)
