"""
The sequence numbers of an entity, and the partitions of one that is partitioned.

1. The numbers of an entity have no gaps and start at 1; those of a partitioned one do so in each of its partitions, and
   their upper 16 bits are the partition.
2. The partition of a message is that of its session id, otherwise that of its partition key, otherwise, if duplicates
   are detected, that of its message id. The others go to all partitions in turn.
3. A copy in a subscription and a dead letter stay in the partition of the message.

Source: Microsoft Learn, "Partitioned queues and topics", "Message sequencing and timestamps".
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from busway_broker.config import QueueConfig, TopicConfig
from busway_broker.core.content import NULL, Content
from busway_broker.core.partition_hash import partition_of_key
from busway_broker.errors import Refusal
from shared.amqp.errors import NOT_ALLOWED

PARTITIONS = 16
_PARTITION_BITS = 48


class Part(NamedTuple):
    """The partition that an operation is on, and the key that chose it; None if a sequence number did."""

    partition: int
    key: str | None = None


def partition_of(number: int) -> int:
    """Return the partition that a sequence number names, 0 in an entity without partitions."""
    return number >> _PARTITION_BITS


def numbers_path(path: str, partition: int) -> str:
    """Return under which path the last number of a partition of the entity at *path* is stored."""
    return f"{path}/$Partitions/{partition}" if partition else path


class SequenceNumbers:
    """The numbers of an entity without partitions."""

    are_partitioned = False

    def __init__(self) -> None:
        # The last number of each partition.
        self.last = [0]

    def others(self) -> "SequenceNumbers":
        """Return the numbers of another store of the same entity."""
        return type(self)()

    def assign(self, content: Content, original: int | None = None) -> int:  # noqa: ARG002 - a partitioned entity uses both
        """Return the next number, for a message whose number in the entity it was first sent to is *original*."""
        self.last[0] += 1
        return self.last[0]

    def part_for(self, content: Content, key: str | None = None) -> Part | None:  # noqa: ARG002 - a partitioned entity uses both
        """Return the partition that a transaction sends a message to; None in an entity without partitions."""
        return None

    def restore(self, assigned: Iterable[int]) -> None:
        """Continue after the numbers that a stored entity has assigned."""
        for number in assigned:
            partition = partition_of(number)
            self.last[partition] = max(number, self.last[partition])

    def paths(self, path: str) -> Iterator[str]:
        """Yield the paths under which the last number of each partition is stored, for what is at *path*."""
        return (numbers_path(path, partition) for partition in range(len(self.last)))

    def identity(self, content: Content) -> bytes:
        """Return what duplicates of a message have in common, null if it has no duplicates."""
        return content.message_id


class PartitionedNumbers(SequenceNumbers):
    """The numbers of a partitioned entity."""

    are_partitioned = True

    def __init__(self, *, by_message_id: bool = False) -> None:
        """Choose the partition of a message without a key by its message id if *by_message_id* is set."""
        super().__init__()
        self.last = [partition << _PARTITION_BITS for partition in range(PARTITIONS)]
        self._by_message_id = by_message_id
        self._turns = itertools.cycle(range(PARTITIONS))

    def assign(self, content: Content, original: int | None = None) -> int:
        """Return the next number of the message's partition."""
        partition = partition_of(original) if original else self._partition(content)
        self.last[partition] += 1
        return self.last[partition]

    def part_for(self, content: Content, key: str | None = None) -> Part:
        """
        Return the partition that a transaction sends a message to, chosen by *key* if it has one.

        Raises: a Refusal for a message without a key (Microsoft Learn, "Partitioned queues and topics").
        """
        key = key or self._key(content)
        if key is None:
            text = "A message in a transaction must have a partition key for an entity with partitioning enabled."
            raise Refusal(NOT_ALLOWED, text)
        return Part(partition_of_key(key, PARTITIONS), key)

    def identity(self, content: Content) -> bytes:
        """Return the message id with the key: equal ids with different keys are no duplicates."""
        message_id = content.message_id
        return message_id if message_id == NULL else message_id + (content.order_key or "").encode()

    def _key(self, content: Content) -> str | None:
        key = content.order_key
        return content.message_id.hex() if key is None and self._by_message_id else key

    def _partition(self, content: Content) -> int:
        key = self._key(content)
        return next(self._turns) if key is None else partition_of_key(key, PARTITIONS)


def numbers_for(config: QueueConfig | TopicConfig) -> SequenceNumbers:
    """Return the numbers of a new queue or topic."""
    if config.enable_partitioning:
        return PartitionedNumbers(by_message_id=config.requires_duplicate_detection)
    return SequenceNumbers()
