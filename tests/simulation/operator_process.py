"""The process of an operator who sends messages again: the product's run over the simulated network."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from cli.evacuation.move import MoveDelivery
from cli.evacuation.pairs import Pair
from cli.evacuation.placement import PlacementDelivery
from cli.evacuation.survey import Share
from cli.evacuation.targets import TargetReceivers
from shared.ends.azure_amqp.raw_connection import Peer, RawConnection
from shared.errors import BuswayError
from shared.protocols import Output
from shared.resend.delivery import Routing, TargetDelivery
from shared.resend.edits import Edits
from shared.resend.inventory import inventory_of
from shared.resend.ledger import Ledger
from shared.resend.options import PATIENCE_SECONDS, Options
from shared.resend.places import Scene, destination_named, entity_named
from shared.resend.routing import routing_of
from shared.resend.run import Result, Run, entity_run
from shared.resend.selection import Selection
from tests.simulation.bus_source import BusConnection, open_bus
from tests.simulation.event_loop import OWNER
from tests.simulation.ledger import SimulatedLedgerStore
from tests.simulation.process import Process
from tests.simulation.senders import event_hubs_output, service_bus_output
from tests.simulation.site import SkewedClock
from tests.simulation.topologies import configuration

if TYPE_CHECKING:
    from tests.simulation.resend import ResendWorld

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
    """One run; it lives until the run has ended, or is killed."""

    def __init__(self, world: "ResendWorld", number: int, *, in_peace: bool) -> None:
        """Begin with nothing but the ledger of earlier runs; *in_peace*: after all that goes wrong."""
        super().__init__(f"run {number}", world.batch_limit, world.backlog.refuses)
        self._world = world
        self._clock = SkewedClock(world.loop, world.skew())
        self.run: Run | None = None
        self.began_in_peace = in_peace
        self.was_killed = True

    def ended(self) -> None:
        """Let the operator know."""
        self._world.ended(self)

    async def resend(self) -> None:
        """Send again whatever is there, and report it."""
        world, began = self._world, self._world.loop.time()
        wanted: Mapping[str, str | None] = {}
        result, failure = Result(), None
        try:
            async with self._outputs() as outputs:
                wanted, result = await self._run(outputs)
        except BuswayError as error:
            failure = error
        world.reports.append(Report(began, wanted, result, failure or result.error))
        self.was_killed = False
        self.kill()

    async def _run(self, outputs: Mapping[str, Output]) -> tuple[Mapping[str, str | None], Result]:
        world, backlog = self._world, self._world.backlog
        scene = Scene(backlog.place, configuration(backlog), world.settings)
        store = SimulatedLedgerStore(world.network, self, world.lines)
        routing = routing_of(scene.place, scene.configuration, backlog.to, "choose another one")
        async with Ledger(store, str(scene.place).lower(), self._clock) as ledger:
            found = await inventory_of(scene.place, scene.settings, Selection(), routing)
            options = Options(
                world.chance.choice((None, None, 2.0)),
                patience=PATIENCE_SECONDS if self.began_in_peace else world.patience,
            )
            async with self._delivery(scene, ledger, routing, outputs, options.patience) as delivery:
                self.run = entity_run(scene, delivery, found.sessions, options)
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
        targets = TargetReceivers(target, scene.settings, self._clock)
        try:
            yield PlacementDelivery(pair, share, scene, ledger, outputs=outputs, targets=targets, patience=patience)
        finally:
            await targets.close()

    @contextlib.asynccontextmanager
    async def _outputs(self) -> AsyncIterator[dict[str, Output]]:
        world = self._world
        outputs: dict[str, Output] = {}
        for alias, connection in configuration(world.backlog).connections.items():
            make: Callable[..., Output] = service_bus_output if connection.kind == "service-bus" else event_hubs_output
            outputs[alias] = make(world.network, self, world.sites[alias.removesuffix("-hub")])
        try:
            yield outputs
        finally:
            for output in outputs.values():
                await output.close()


@contextlib.contextmanager
def simulated_connections(world: "ResendWorld") -> Iterator[None]:
    """Let the product open its connections over the network of *world*; nothing else of it is replaced."""

    async def opened(_: str, peer: Peer, path: str) -> BusConnection:
        owner = OWNER.get()
        assert isinstance(owner, Process)
        return await open_bus(world.network, owner, world.sites[peer.host_name], path)

    with patch.object(RawConnection, "open", opened):
        yield


def started(world: "ResendWorld", number: int, *, in_peace: bool) -> OperatorProcess:
    """Return a process that has begun its run."""
    process = OperatorProcess(world, number, in_peace=in_peace)
    process.context.run(partial(world.loop.create_task, process.resend(), context=process.context))
    return process
