"""
Reads a hub without the host, for events that Azure's host cannot pass to a function.

The host decodes each event with .NET and fails at binary keys and headers of Kafka producers, at lists with null and
others (docs/hub-sources.md): the event's partition stops. Here the bytes go from the link to the line. The checkpoint
moves on after the line has the outcome of a batch, as the host's does. Only one reader per partition is connected: it
opens its link with the host's epoch, which disconnects others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from shared.ends.azure_amqp.raw_link import LinkClosed
from shared.ends.event_hubs.receiver import EventHub, PartitionConnection
from shared.errors import BuswayError, TargetUnavailable
from shared.line.shutdown import Shutdown
from shared.message.arrival import event_place
from shared.printable import printable
from shared.stores.host_checkpoints import HostCheckpoint, HostCheckpoints

_LOGGER = logging.getLogger("busway.reader")

_BATCH = 250
_PREFETCH = 300
_EPOCH = 0
_BEGINNING = "-1"
_LOOK_SECONDS = 0.5
_SHORTEST_PAUSE, _LONGEST_PAUSE = 5.0, 60.0
_STOLEN = "amqp:link:stolen"
_INVALID_OFFSET = "com.microsoft:georeplication:invalid-offset"


class Run(Protocol):
    """Processes a batch of a partition, such as `Pipeline.run`."""

    def __call__(self, batch: Sequence[bytes], partition: str | None = None) -> Awaitable[object]:
        """Raise BuswayError if the batch must come again."""
        ...


@dataclass
class HubReader:
    """Reads all partitions of the source of one task, side by side, each in its order."""

    task: str
    hub: EventHub
    checkpoints: HostCheckpoints
    run: Run
    shutdown: Shutdown
    _: KW_ONLY
    partitions: Sequence[str] | None = None
    """Those to read, None for all."""
    is_compacted: bool = False
    """Whether the numbers of the hub have gaps."""
    look_seconds: float = _LOOK_SECONDS
    """The seconds without events after which a shutdown is noticed."""
    failing: set[str] = field(default_factory=set, init=False)
    """The partitions that cannot be read."""

    async def read(self, seconds: float) -> None:
        """Read for *seconds*, and to the end of the batch in hand; raises TargetUnavailable, TargetRefused."""
        end = asyncio.get_running_loop().time() + seconds
        names = self.partitions or await self.hub.partition_ids()
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._partition(name, end))

    async def _partition(self, name: str, end: float) -> None:
        loop = asyncio.get_running_loop()
        pause = _SHORTEST_PAUSE
        while not self.shutdown.is_requested and loop.time() < end:
            try:
                await self._batches(name, end)
            except BuswayError as error:
                if isinstance(error, LinkClosed) and error.condition == _STOLEN:
                    _LOGGER.warning("%s: another reader has partition %s", self.task, name)
                    return
                if name not in self.failing:
                    text = "cannot be read; the reader tries again"
                    _LOGGER.warning("%s: partition %s %s: %s", self.task, name, text, printable(str(error)))
                self.failing.add(name)
                await self.shutdown.sleep(min(pause, max(end - loop.time(), 0)))
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _batches(self, name: str, end: float) -> None:
        loop = asyncio.get_running_loop()
        checkpoint = await self.checkpoints.read(name)
        opened = await self._opened(name, checkpoint)
        try:
            while not self.shutdown.is_requested and loop.time() < end:
                batch = await opened.link.receive(_BATCH, self.look_seconds)
                if not batch:
                    continue
                self._note_gone(name, checkpoint, batch[0].payload)
                await self.run([delivery.payload for delivery in batch], name)
                last = event_place(batch[-1].payload)
                if last is None:
                    raise TargetUnavailable(f"{self.hub.where}/{name}: an event came without its place")
                version = None if checkpoint is None else checkpoint.version
                version = await self.checkpoints.write(name, last.offset, last.number, version)
                checkpoint = HostCheckpoint(last.offset, last.number, version)
                if name in self.failing:
                    self.failing.discard(name)
                    _LOGGER.info("%s: partition %s is read again", self.task, name)
        finally:
            await opened.close()

    def _note_gone(self, name: str, checkpoint: HostCheckpoint | None, first: bytes) -> None:
        """
        Log the events between *checkpoint* and the *first* event that comes.

        A position that the hub no longer has is not refused (CachedEventHubsReceiver of azure-event-hubs-spark).
        """
        if checkpoint is None or checkpoint.number is None or self.is_compacted:
            return
        place = event_place(first)
        if place is not None and place.number > checkpoint.number + 1:
            text = "were not read, and are no longer in the hub: sequence numbers"
            last = place.number - 1
            _LOGGER.error("%s: events of partition %s %s %d to %d", self.task, name, text, checkpoint.number + 1, last)

    async def _opened(self, name: str, checkpoint: HostCheckpoint | None) -> PartitionConnection:
        position = _BEGINNING if checkpoint is None else checkpoint.position
        try:
            return await self.hub.open(name, position, _PREFETCH, epoch=_EPOCH)
        except LinkClosed as error:
            if error.condition != _INVALID_OFFSET or checkpoint is None or checkpoint.number is None:
                raise
            # The offset is of before the geo-replication; the number stays the same.
            return await self.hub.open(name, checkpoint.number, _PREFETCH, epoch=_EPOCH)
