"""Event hubs of a site, as the listener of the local host sees them."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from busway_broker import errors
from busway_broker.core.hub import Coordinate, Position
from busway_broker.core.hub import Partition as HubPartition
from busway_broker.errors import Refusal
from busway_broker.protocol.hub_links import position_of
from shared.amqp.peer_error import PeerError
from shared.amqp.requests import Answer
from shared.amqp.values import Described, Value
from shared.ends.azure_amqp.raw_link import RawLink, refused_or_closed
from shared.errors import TargetUnavailable
from shared.message.waiting import PartitionEnd
from tests.simulation.carrier import Carrier
from tests.simulation.consumer import Consumer
from tests.simulation.faults import Operation
from tests.simulation.network import Channel, Cut, Network
from tests.simulation.process import Process
from tests.simulation.site import Site

_PARTITION_START = "-1"
_LOOK_SECONDS = 6.0


class _Reader:
    """A reader of a partition at the service."""

    name = "nil"

    def __init__(self, consumer: Consumer, partition: HubPartition, start: int, epoch: int | None) -> None:
        self.consumer = consumer
        self.epoch = epoch
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


class HubConnection(Carrier):
    """A connection to a hub, as `RawConnection`."""

    def __init__(self, network: Network, owner: Process, site: Site, name: str, partition_id: str = "") -> None:
        """Open it."""
        super().__init__(network, owner, site, f"{site.name}/{name}" + (f"/{partition_id}" if partition_id else ""))
        self._hub = site.namespace.hub(name)

    async def attach(
        self,
        path: str,
        properties: Mapping[str, Value],  # noqa: ARG002 - readers without an epoch
        prefetch: int,
        *,
        filters: Mapping[str, Value],
        capabilities: Sequence[str] = (),  # noqa: ARG002 - none is offered
        is_settled: bool = True,  # noqa: ARG002 - events are not settled
    ) -> RawLink:
        """Return a new link to a partition; see `RawConnection.attach`."""
        _, _, group, _, partition_id = path.split("/")
        (selector,) = filters.values()
        described = selector.payload
        assert isinstance(described, Described)
        return await self.read(group, partition_id, position_of(described.value, is_replicated=False), prefetch, None)

    async def request(self, node: str, *_: object) -> Answer:
        """Refuse: a hub shows nothing that is asked of a queue."""
        raise PeerError(errors.NOT_FOUND, f"{node} could not be found")

    async def read(
        self, group_name: str, partition_id: str, position: Position, prefetch: int, epoch: int | None
    ) -> RawLink:
        """Return a new link to a partition, from *position* on."""
        partition, group = self._hub.partition(partition_id), self._hub.consumer_group(group_name)

        def join(consumer: Consumer) -> None:
            reader = _Reader(consumer, partition, partition.start(position), epoch)
            partition.join(group, reader)
            if self.channel.owner.is_dead:
                # Its request has arrived after that of another instance, which it cuts off.
                self.channel.owner.leaves_partitions()
            self.channel.when_cut(lambda: partition.leave(group, reader), at_service=True)

        raw, _ = await self.join(prefetch, join, None, drains=False, settled=True)
        raw.is_attached = True
        return raw


async def open_hub(network: Network, owner: Process, site: Site, name: str, partition_id: str = "") -> HubConnection:
    """Return a connection to a hub; raises TargetUnavailable and TargetRefused."""
    if site.is_away:
        await asyncio.sleep(network.delay())
        raise refused_or_closed(name, Cut(name))
    return HubConnection(network, owner, site, name, partition_id)


async def ends_of_hub(network: Network, owner: Process, site: Site, name: str) -> Mapping[str, PartitionEnd]:
    """Return what `HubSite.partitions` returns."""
    hub, channel = site.namespace.hub(name), Channel(network, owner, site, f"{site.name}/{name}")

    def look() -> dict[str, PartitionEnd]:
        found = {}
        for each in hub.partitions:
            last = each.last
            number, time = (-1, None) if last is None else (last.sequence_number, last.enqueued_time)
            found[each.partition_id] = PartitionEnd(0, number, time, last is None)
        return found

    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            return await channel.request(Operation.MANAGE, look)
    except (Cut, Refusal, TimeoutError) as error:
        raise TargetUnavailable(f"{site.name}/{name}: {type(error).__name__}") from error
    finally:
        channel.cut()


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
        connection = await open_hub(self._network, self._owner, self._site, self.name, partition_id)
        offset = -1 if position == _PARTITION_START else int(str(position))
        start = Position(Coordinate.OFFSET, offset, is_inclusive=False)
        raw = await connection.read(self.consumer_group, partition_id, start, prefetch, epoch)
        return SimpleNamespace(link=raw, close=connection.close)

    async def close(self) -> None:
        """Do nothing: each link has a connection of its own."""
