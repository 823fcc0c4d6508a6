"""
A store of a partitioned entity without sessions: messages are in order within a partition, and in none across them.

Azure delivers what the first of its brokers to answer has; here the partitions have the first turn one after the other.
As an option, messages of a partition are locked in groups, as was seen in the Standard tier: one that is delivered late
has a short or expired lock then (issue 155 of Azure/azure-service-bus). One that returns starts another group.
"""

from collections import deque

from busway_broker.core.message import StoredMessage
from busway_broker.core.ready_queue import ReadyQueue
from busway_broker.core.sequence_numbers import PARTITIONS, partition_of
from busway_broker.core.store import MessageStore
from busway_broker.core.times import milliseconds


class PartitionedStore(MessageStore):
    """A store whose consumers share the messages of all partitions."""

    def prepare(self) -> None:
        """Set up the partitions."""
        self._partitions = [ReadyQueue(self._ready.consumers) for _ in range(PARTITIONS)]
        self._turns = deque(self._partitions)
        # By partition: the end of the lock that the group has, and how many more messages get it.
        self._groups: dict[int, tuple[int, int]] = {}

    def dispatch(self) -> None:
        """Deliver what is ready, another partition first each time."""
        now = milliseconds(self._clock)
        for ready in self._turns:
            self._dispatch(ready, now)
        self._turns.rotate(-1)

    def _lock(self, message: StoredMessage, now: int) -> bytes:
        token = super()._lock(message, now)
        size, partition = self._config.lock_group_size, partition_of(message.sequence_number)
        if size > 1:
            until, others = self._groups.get(partition, (0, 0))
            if others and not message.delivery_count:
                message.locked_until = until
                self._locks.are_in_order = False
                self._timers.set(self, until)
            else:
                until, others = message.locked_until, size
            self._groups[partition] = until, others - 1
        return token

    def _ready_queue_for(self, message: StoredMessage) -> ReadyQueue:
        return self._partitions[partition_of(message.sequence_number)]
