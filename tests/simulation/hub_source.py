"""Event hubs of a site, as the listener of the local host sees them."""

import asyncio
from types import SimpleNamespace
from typing import Any

from busway_broker.core.hub import Coordinate, Position
from busway_broker.core.hub import Partition as HubPartition
from busway_broker.errors import Refusal
from shared.ends.azure_amqp.raw_link import refused_or_closed
from tests.simulation.carrier import Carrier
from tests.simulation.consumer import Consumer
from tests.simulation.network import Cut, Network
from tests.simulation.process import Process
from tests.simulation.site import Site

_PARTITION_START = "-1"


class _Reader:
    """A reader of a partition at the service."""

    epoch = 0
    name = "nil"

    def __init__(self, consumer: Consumer, partition: HubPartition, start: int) -> None:
        self.consumer = consumer
        self.next = start
        self._partition = partition
        self._pump, consumer.pump = consumer.pump, self.wake  # type: ignore[method-assign] # events instead of messages

    def wake(self) -> None:
        """Send what the instance takes."""
        while self.consumer.can_take():
            event = self._partition.event(self.next)
            if event is None:
                return
            self.next = event.sequence_number + 1
            self.consumer.take(b"", event.encode())
            self.consumer._tags.clear()

    def stolen(self, refusal: Refusal) -> None:
        """End: another reader has taken the partition."""
        self.consumer.end(refusal.condition)


class HubSource:
    """An event hub of a site, as `EventHub`."""

    def __init__(self, network: Network, owner: Process, site: Site, name: str, consumer_group: str) -> None:
        """Read all partitions for *consumer_group*."""
        self.name = name
        self.consumer_group = consumer_group
        self.connection_name = site.name
        self.namespace = site.name
        self._network = network
        self._owner = owner
        self._site = site

    async def partition_ids(self) -> list[str]:
        """Return the partitions."""
        await asyncio.sleep(self._network.delay())
        if self._site.is_away:
            raise refused_or_closed(self.name, Cut(self.name))
        return [partition.partition_id for partition in self._site.namespace.hub(self.name).partitions]

    async def open(self, partition_id: str, position: object, prefetch: int, *, epoch: int | None = None) -> Any:
        """Return an open link to a partition after *position*."""
        assert epoch == 0
        where = f"{self.name}/{partition_id}"
        if self._site.is_away:
            await asyncio.sleep(self._network.delay())
            raise refused_or_closed(where, Cut(where))
        carrier = Carrier(self._network, self._owner, self._site, f"{self._site.name}/{where}")
        hub = self._site.namespace.hub(self.name)
        partition, group = hub.partition(partition_id), hub.consumer_group(self.consumer_group)
        offset = -1 if position == _PARTITION_START else int(str(position))

        def join(consumer: Consumer) -> None:
            start = partition.start(Position(Coordinate.OFFSET, offset, is_inclusive=False))
            reader = _Reader(consumer, partition, start)
            partition.join(group, reader)
            carrier.channel.when_cut(lambda: partition.leave(group, reader), at_service=True)

        raw, _ = await carrier.join(prefetch, join, None, drains=False, settled=True)
        raw.is_attached = True
        return SimpleNamespace(link=raw, close=carrier.close)

    async def close(self) -> None:
        """Do nothing: each link has a connection of its own."""
