"""
Event Hubs triggers.

Each partition is processed independently: receive, invoke, checkpoint. The checkpoint advances even if the function has
failed, after its retry policy is exhausted. A function that takes one event is invoked for each event of a received
batch in turn. An event that .NET cannot read blocks its partition: the receive call fails again and again. One that it
cannot bind fails its invocation, and the checkpoint advances.

A position behind the last event is refused each time, until the hub has passed it; the host then goes on in the middle
(azure-sdk-for-net 53741). An offset of before a geo-replication resets the partition to its default position (47303).

Another owner of a partition starts at the last checkpoint at once. The old one learns of it at its next read: until
then both process the same events. It has no retry and no checkpoint any more, and does not take the partition back
(EH13, EH14: azure-sdk-for-net 17651, 42299; FN25: 29335).

Source: EventHubListener.PartitionProcessor.ProcessEventsAsync (Azure/azure-sdk-for-net, sdk/eventhub/
Microsoft.Azure.WebJobs.Extensions.EventHubs/src/Listeners, commit ce5a31530b3d).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from host.annotations import annotations_of, text_of
from host.checkpoints import Checkpoints, Partition
from host.dotnet_values import CannotReceive
from host.invocation import invoke_with_retries
from host.listener import Stopping, keep_listening
from host.platform import Losing
from host.settings import EventHubsOptions
from host.triggers.gathering import Gathering
from host.worker import Function, Worker
from host.worker_input import event_hubs_input
from shared.clock import Clock
from shared.ends.azure_amqp.raw_link import Delivery, LinkClosed, RawLink
from shared.ends.event_hubs.receiver import EventHub, PartitionConnection, Position
from shared.errors import TargetUnavailable

_log = logging.getLogger(__name__)

_RECEIVE_SECONDS = 60.0
# Of equal epochs, the newest reader cuts the others off.
_EPOCH = 0
_STOLEN = "amqp:link:stolen"
_INVALID_OFFSET = "com.microsoft:georeplication:invalid-offset"
_START = "-1"
_END = "@latest"


@dataclass(eq=False)
class EventHubsListener:
    """Invokes one function with the events of all partitions of a hub; nothing is opened before `run`."""

    function: Function
    hub: EventHub
    options: EventHubsOptions
    worker: Worker
    clock: Clock
    _: KW_ONLY
    stopping: Stopping
    checkpoints: Checkpoints
    wire: bool
    losing: Losing
    steal_after: float | None
    """See `Platform`."""
    partition_wait: float = 0.0
    """Likewise, for partitions that have a checkpoint."""
    is_listening: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # In the order in which they began: a set would end them in that of their addresses.
    _links: dict[RawLink, None] = field(default_factory=dict, init=False)
    _waiting_partitions: int = field(default=0, init=False)
    _owners: asyncio.TaskGroup | None = field(default=None, init=False)
    _stolen: set[str] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Listen until stopped; see `Listener`."""
        try:
            await keep_listening(self.function.name, self.stopping, self._listen)
        finally:
            await self.hub.close()

    def stop(self) -> None:
        """Accept nothing more; see `Listener`."""
        self.stopping.request()
        for link in self._links:
            link.interrupt()

    async def _listen(self, let_in: Callable[[], None]) -> None:
        partition_ids = await self.hub.partition_ids()
        let_in()
        self._waiting_partitions = len(partition_ids)
        wait, self.partition_wait = self.partition_wait, 0.0
        async with asyncio.TaskGroup() as self._owners:
            for partition_id in partition_ids:
                self._owners.create_task(self._partition(partition_id, wait))

    async def _partition(self, partition_id: str, wait: float = 0.0) -> None:
        partition = Partition(self.hub.connection_name, self.hub.name, self.hub.consumer_group, partition_id)
        if wait and self.checkpoints.get(partition) is not None:
            await self.stopping.wait(wait)
        name = f"{self.function.name}/{partition_id}"
        is_first = True

        async def opened_at(position: Position) -> PartitionConnection:
            return await self.hub.open(partition_id, position, self.options.prefetch_count, epoch=_EPOCH)

        async def listen(let_in: Callable[[], None]) -> None:
            nonlocal is_first
            try:
                opened = await opened_at(self.checkpoints.get(partition) or self._initial_position)
            except LinkClosed as error:
                if error.condition != _INVALID_OFFSET:
                    raise
                _log.warning(
                    "%s: the checkpoint is of before the geo-replication; starts at its default position", name
                )
                opened = await opened_at(self._initial_position)
            self._links[opened.link] = None
            let_in()
            if is_first:
                is_first = False
                self._waiting_partitions -= 1
                if self._waiting_partitions == 0:
                    self.is_listening.set()
            try:
                await self._pump(partition, opened.link)
            except LinkClosed as error:
                if error.condition != _STOLEN:
                    raise
                _log.warning("%s: another owner has the partition", name)
                await self.stopping.requested()
            finally:
                self._links.pop(opened.link, None)
                await opened.close()

        await keep_listening(name, self.stopping, listen)

    async def _pump(self, partition: Partition, link: RawLink) -> None:
        batches, most = 0, self.options.max_event_batch_size
        least = self.options.min_event_batch_size if self.function.is_many else 1
        gathering = Gathering(least, most, self.options.max_wait_time)
        while not self.stopping:
            events = gathering.take(await link.receive(most, gathering.wait(_RECEIVE_SECONDS)))
            if not events or self.stopping:
                continue
            kept, _ = self.losing.divide(f"{self.function.name}/{partition.partition_id}", events)
            parts = [[event] for event in kept]
            if self.function.is_many:
                parts = [list(kept)] if kept else []
            try:
                for part in parts:
                    is_checkpointed = part is parts[-1] and (batches + 1) % self.options.batch_checkpoint_frequency == 0
                    if (
                        not await self._invoke(partition, link, part, is_checkpointed=is_checkpointed)
                        and self.stopping.is_announced
                    ):
                        # The stop has ended its retries. A later checkpoint would pass over it.
                        await self.stopping.requested()
                        return
            except CannotReceive as error:
                raise TargetUnavailable(f"the partition is blocked: {error}") from error
            batches += 1
            if _is_stolen(link):
                link.raise_if_closed()
            if not self.stopping and batches % self.options.batch_checkpoint_frequency == 0:
                offset = text_of(annotations_of(events[-1].payload), "x-opt-offset")
                if offset is not None:
                    self.checkpoints.set(partition, offset)

    async def _invoke(
        self, partition: Partition, link: RawLink, events: Sequence[Delivery], *, is_checkpointed: bool
    ) -> bool:
        now = int(self.clock.now().timestamp() * 1000)
        context = {
            "IsCheckpointingAfterInvocation": is_checkpointed,
            "FullyQualifiedNamespace": self.hub.namespace,
            "EventHubName": partition.hub,
            "ConsumerGroup": partition.consumer_group,
            "PartitionId": partition.partition_id,
        }
        stealing = asyncio.create_task(self._steal(partition.partition_id))
        try:
            invocation = await invoke_with_retries(
                self.worker,
                self.function,
                lambda: event_hubs_input(self.function, events, now, context, wire=self.wire),
                self.stopping,
                lambda: _is_stolen(link),
            )
        finally:
            stealing.cancel()
        if not invocation.succeeded and not (self.stopping.is_announced or _is_stolen(link)):
            _log.error("%s: %d events are passed over", self.function.name, len(events))
        return invocation.succeeded

    async def _steal(self, partition_id: str) -> None:
        """Give the partition a second owner if the invocation runs for long enough."""
        if self.steal_after is None or self._owners is None or partition_id in self._stolen:
            return
        await self.stopping.wait(self.steal_after)
        if not self.stopping:
            self._stolen.add(partition_id)
            self._owners.create_task(self._partition(partition_id))

    @property
    def _initial_position(self) -> Position:
        if self.options.initial_offset == "fromEnqueuedTime" and self.options.initial_enqueued_time is not None:
            return self.options.initial_enqueued_time
        return _END if self.options.initial_offset == "fromEnd" else _START


def _is_stolen(link: RawLink) -> bool:
    return getattr(link.closed_with, "condition", None) == _STOLEN
