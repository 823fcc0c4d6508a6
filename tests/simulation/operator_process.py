"""The processes of an operator who sends messages again: the product's run over the simulated network."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from cli.evacuation.move import MoveDelivery, PlacementDelivery
from cli.evacuation.pairs import Pair
from cli.evacuation.receivers import TargetReceivers
from cli.evacuation.survey import Share
from shared.ends.azure_amqp.raw_connection import Peer, RawConnection
from shared.ends.event_hubs.site import HubSite
from shared.errors import BuswayError
from shared.message.waiting import PartitionEnd
from shared.protocols import Output
from shared.resend.delivery import Routing, TargetDelivery
from shared.resend.edits import Edits
from shared.resend.inventory import inventory_of
from shared.resend.ledger import Ledger
from shared.resend.options import PATIENCE_SECONDS, Options
from shared.resend.places import Scene, destination_named, entity_named
from shared.resend.receiver import supply_of
from shared.resend.routing import routing_of
from shared.resend.run import Result, Run
from shared.resend.selection import Selection
from tests.simulation.bus_source import BusConnection, open_bus
from tests.simulation.event_loop import OWNER
from tests.simulation.hub_source import HubConnection, ends_of_hub, open_hub
from tests.simulation.ledger import SimulatedLedgerStore
from tests.simulation.process import Process
from tests.simulation.senders import event_hubs_output, service_bus_output
from tests.simulation.site import SkewedClock
from tests.simulation.topology import configuration

if TYPE_CHECKING:
    from tests.simulation.resend import ResendWorld
    from tests.simulation.world import World

_MOST_DELIVERIES = 4_320


class Report(NamedTuple):
    """What a run said at its end."""

    began: float
    wanted: Mapping[str, str | None]
    result: Result
    error: BuswayError | None
    """Why it could not begin, or end as it should."""

    @property
    def left(self) -> Mapping[str, str]:
        """Return why messages stay, by their keys."""
        return self.result.left


class OperatorProcess(Process):
    """One command; it lives until the command has ended, or is killed."""

    def __init__(self, world: "World | ResendWorld", number: int, *, in_peace: bool) -> None:
        """Begin with nothing but the ledger of earlier runs; *in_peace*: after all that goes wrong."""
        super().__init__(f"run {number}", world.batch_limit, world.topology.refuses)
        self._world = world
        self.clock = SkewedClock(world.loop, world.skew())
        self.began_in_peace = in_peace
        self.was_killed = True

    def start(self) -> None:
        """Begin."""
        self.context.run(partial(self._world.loop.create_task, self._to_its_end(), context=self.context))

    async def _to_its_end(self) -> None:
        try:
            await self.carry_out()
        except Exception as error:
            self._world.loop.failures.append(error)
            raise
        self.was_killed = False
        self.kill()

    async def carry_out(self) -> None:
        """Do what the command does, and report it."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def outputs(self) -> AsyncIterator[dict[str, Output]]:
        """Open an output for each connection, and close it at the end."""
        world = self._world
        outputs: dict[str, Output] = {}
        for alias, connection in configuration(world.topology).connections.items():
            make: Callable[..., Output] = service_bus_output if connection.kind == "service-bus" else event_hubs_output
            outputs[alias] = make(world.network, self, world.sites[alias.removesuffix("-hub")])
        try:
            yield outputs
        finally:
            for output in outputs.values():
                await output.close()


class ResendProcess(OperatorProcess):
    """One run over what was given up."""

    _world: "ResendWorld"
    run: Run | None = None

    def ended(self) -> None:
        """Let the operator know."""
        self._world.ended(self)

    async def carry_out(self) -> None:
        """Send again whatever is there, and report it."""
        world, began = self._world, self._world.loop.time()
        wanted: Mapping[str, str | None] = {}
        result, failure = Result(), None
        try:
            async with self.outputs() as outputs:
                wanted, result = await self._run(outputs)
        except BuswayError as error:
            failure = error
        world.reports.append(Report(began, wanted, result, failure or result.error))

    async def _run(self, outputs: Mapping[str, Output]) -> tuple[Mapping[str, str | None], Result]:
        world, backlog = self._world, self._world.backlog
        scene = Scene(backlog.place, configuration(backlog), world.settings)
        store = SimulatedLedgerStore(world.network, self, world.lines)
        routing = routing_of(scene.place, scene.configuration, backlog.to, "choose another one")
        async with Ledger(store, str(scene.place).lower(), self.clock) as ledger:
            found = await inventory_of(scene.place, scene.settings, Selection(), routing)
            options = Options(
                world.chance.choice((None, None, 2.0)),
                patience=PATIENCE_SECONDS if self.began_in_peace else world.patience,
            )
            async with self._delivery(scene, ledger, routing, outputs, options.patience) as delivery:
                self.run = Run(supply_of(scene.place, scene.settings, ledger.clock), delivery, found.sessions, options)
                return dict(found.sessions), await self.run.run()

    @contextlib.asynccontextmanager
    async def _delivery(
        self, scene: Scene, ledger: Ledger, routing: Routing, outputs: Mapping[str, Output], patience: float
    ) -> AsyncIterator[TargetDelivery]:
        backlog, share = self._world.backlog, self._world.backlog.share
        if share is None:
            yield TargetDelivery(scene, ledger, Edits(new_ids=backlog.new_ids), routing, outputs)
            return
        to = backlog.to or ""
        target = entity_named(to, scene.configuration)
        pair = Pair(
            scene.place,
            target,
            destination_named(to, scene.configuration),
            max_delivery_count=_MOST_DELIVERIES,
            target_is_partitioned=backlog.is_partitioned,
        )
        if share is Share.ACTIVE:
            yield MoveDelivery(pair, share, scene, ledger, outputs)
            return
        targets = TargetReceivers(target, scene.settings, self.clock)
        try:
            yield PlacementDelivery(pair, share, scene, ledger, outputs, targets=targets, patience=patience)
        finally:
            await targets.close()


@contextlib.contextmanager
def simulated_connections(world: "World | ResendWorld") -> Iterator[None]:
    """Let the product open its connections over the network of *world*; nothing else of it is replaced."""

    def owner() -> Process:
        found = OWNER.get()
        assert isinstance(found, Process)
        return found

    async def opened(_: str, peer: Peer, path: str) -> BusConnection | HubConnection:
        site = world.sites[peer.host_name]
        if path in site.namespace.hubs:
            return await open_hub(world.network, owner(), site, path)
        return await open_bus(world.network, owner(), site, path)

    async def partitions(self: HubSite, hub: str) -> Mapping[str, PartitionEnd]:
        return await ends_of_hub(world.network, owner(), world.sites[self._site], hub)

    with patch.object(RawConnection, "open", opened), patch.object(HubSite, "partitions", partitions):
        yield
