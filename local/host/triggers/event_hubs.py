"""
Event Hubs triggers.

Each partition is processed independently: receive, invoke, checkpoint. The checkpoint advances even if the function has
failed, after its retry policy is exhausted. A function that takes one event is invoked for each event of a received
batch in turn. An event that .NET cannot read blocks its partition: the receive call fails again and again. One that it
cannot bind fails its invocation, and the checkpoint advances.

Source: EventHubListener.PartitionProcessor.ProcessEventsAsync (Azure/azure-sdk-for-net, sdk/eventhub/
Microsoft.Azure.WebJobs.Extensions.EventHubs/src/Listeners, commit ce5a31530b3d).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from local.host.checkpoints import Checkpoints, Partition
from local.host.dotnet_values import CannotReceive
from local.host.event_hubs_connection import EventHub, Position
from local.host.invocation import invoke_with_retries
from local.host.listener import Stopping, keep_listening
from local.host.losing import Losing
from local.host.received_message import annotations_of, text_of
from local.host.settings import EventHubsOptions, HostOptions, Settings
from local.host.worker import Function, Worker
from local.host.worker_input import event_hubs_input
from shared.azure.receivers.raw_link import Delivery, RawLink
from shared.clock import Clock
from shared.errors import ConfigError, Problem, TargetUnavailable

_log = logging.getLogger(__name__)

_RECEIVE_SECONDS = 60.0
# Of equal epochs, the newest reader cuts the others off.
_EPOCH = 0
_START = "-1"
_END = "@latest"


class EventHubsListener:
    """Invokes one function with the events of all partitions of a hub."""

    def __init__(
        self,
        function: Function,
        settings: Settings,
        options: HostOptions,
        worker: Worker,
        clock: Clock,
        *,
        stopping: Stopping,
        checkpoints: Checkpoints,
        wire: bool,
        losing: Losing,
    ) -> None:
        """Prepare; nothing is opened before `run`."""
        trigger = function.trigger
        path = f"{function.name}.{function.parameter}"
        if not trigger.get("eventHubName"):
            raise ConfigError([Problem(path, "expected eventHubName")])
        self.function = function
        self.is_listening = asyncio.Event()
        connection = settings.connection(settings.resolve(str(trigger.get("connection")), path), path)
        self._connection_name = connection.name
        self._hub = EventHub(
            connection,
            settings.resolve(str(trigger["eventHubName"]), f"{path}.eventHubName"),
            settings.resolve(str(trigger.get("consumerGroup") or "$Default"), f"{path}.consumerGroup"),
        )
        self._options: EventHubsOptions = options.event_hubs
        self._worker = worker
        self._clock = clock
        self._checkpoints = checkpoints
        self._wire = wire
        self._stopping = stopping
        self._losing = losing
        self._links: set[RawLink] = set()
        self._waiting_partitions = 0

    async def run(self) -> None:
        """Listen until stopped; see `Listener`."""
        try:
            await keep_listening(self.function.name, self._stopping, self._listen)
        finally:
            await self._hub.close()

    def stop(self) -> None:
        """Accept nothing more; see `Listener`."""
        self._stopping.request()
        for link in self._links:
            link.interrupt()

    async def _listen(self, let_in: Callable[[], None]) -> None:
        partition_ids = await self._hub.partition_ids()
        let_in()
        self._waiting_partitions = len(partition_ids)
        async with asyncio.TaskGroup() as partitions:
            for partition_id in partition_ids:
                partitions.create_task(self._partition(partition_id))

    async def _partition(self, partition_id: str) -> None:
        partition = Partition(self._connection_name, self._hub.name, self._hub.consumer_group, partition_id)
        name = f"{self.function.name}/{partition_id}"
        is_first = True

        async def listen(let_in: Callable[[], None]) -> None:
            nonlocal is_first
            opened = await self._hub.open(
                partition_id, self._position(partition), self._options.prefetch_count, epoch=_EPOCH
            )
            self._links.add(opened.link)
            let_in()
            if is_first:
                is_first = False
                self._waiting_partitions -= 1
                if self._waiting_partitions == 0:
                    self.is_listening.set()
            try:
                await self._pump(partition, opened.link)
            finally:
                self._links.discard(opened.link)
                await opened.close()

        await keep_listening(name, self._stopping, listen)

    async def _pump(self, partition: Partition, link: RawLink) -> None:
        batches = 0
        while not self._stopping:
            events = await link.receive(self._options.max_event_batch_size, _RECEIVE_SECONDS)
            if not events or self._stopping:
                continue
            kept, _ = self._losing.divide(f"{self.function.name}/{partition.partition_id}", events)
            parts = [[event] for event in kept]
            if self.function.is_many:
                parts = [list(kept)] if kept else []
            try:
                for part in parts:
                    is_checkpointed = (
                        part is parts[-1] and (batches + 1) % self._options.batch_checkpoint_frequency == 0
                    )
                    if (
                        not await self._invoke(partition, part, is_checkpointed=is_checkpointed)
                        and self._stopping.is_announced
                    ):
                        # The stop has ended its retries. A later checkpoint would pass over it.
                        await self._stopping.requested()
                        return
            except CannotReceive as error:
                raise TargetUnavailable(f"the partition is blocked: {error}") from error
            batches += 1
            if not self._stopping and batches % self._options.batch_checkpoint_frequency == 0:
                offset = text_of(annotations_of(events[-1].payload), "x-opt-offset")
                if offset is not None:
                    self._checkpoints.set(partition, offset)

    async def _invoke(self, partition: Partition, events: Sequence[Delivery], *, is_checkpointed: bool) -> bool:
        now = int(self._clock.now().timestamp() * 1000)
        context = {
            "IsCheckpointingAfterInvocation": is_checkpointed,
            "FullyQualifiedNamespace": self._hub.namespace,
            "EventHubName": partition.hub,
            "ConsumerGroup": partition.consumer_group,
            "PartitionId": partition.partition_id,
        }
        invocation = await invoke_with_retries(
            self._worker,
            self.function,
            lambda: event_hubs_input(self.function, events, now, context, wire=self._wire),
            self._stopping,
        )
        if not invocation.succeeded and not self._stopping.is_announced:
            _log.error("%s: %d events are passed over", self.function.name, len(events))
        return invocation.succeeded

    def _position(self, partition: Partition) -> Position:
        checkpoint = self._checkpoints.get(partition)
        if checkpoint is not None:
            return checkpoint
        if self._options.initial_offset == "fromEnqueuedTime" and self._options.initial_enqueued_time is not None:
            return self._options.initial_enqueued_time
        return _END if self._options.initial_offset == "fromEnd" else _START
