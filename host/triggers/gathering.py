"""
Batches of a least size (minMessageBatchSize, minEventBatchSize): what was received waits for more, but not too long.

The rest of a session goes out when nothing else has come before the session is closed. What still waits when the host
stops is not settled.

Source: ServiceBusListener.MonitorCache and ServiceBusMessageManager, PartitionProcessorEventsManager
(Azure/azure-sdk-for-net, sdk/servicebus and sdk/eventhub, Microsoft.Azure.WebJobs.Extensions.*/src/Listeners).
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from shared.ends.azure_amqp.raw_link import Delivery


class Gathering:
    """The messages of one receiver that wait for a batch."""

    def __init__(self, least: int, most: int, longest: timedelta) -> None:
        """Make batches of *least* to *most* messages, and of fewer once the first has waited for the *longest* time."""
        self._least = least
        self._most = most
        self._longest = longest.total_seconds()
        self._waiting: list[Delivery] = []
        self._until: float | None = None

    def wait(self, seconds: float) -> float:
        """Return how long to receive before the next `take`, at most *seconds*."""
        if not self._waiting:
            return seconds
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._longest
        return max(min(seconds, self._until - now), 0.0)

    def take(self, received: Sequence[Delivery] = (), *, is_end: bool = False) -> list[Delivery]:
        """Add what was *received*, and return the next batch, empty while it waits; at the end all that is left."""
        self._waiting += received
        is_due = self._until is not None and asyncio.get_running_loop().time() >= self._until
        if len(self._waiting) < self._least and not is_due and not is_end:
            return []
        batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        self._until = None
        return batch
