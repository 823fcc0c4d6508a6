"""The process of an operator who repairs what is missing, or replays what a task has carried."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cli.repair.manifest import Missing
from cli.repair.repair import Repair
from cli.repair.search import Report
from cli.replay.delivery import ReplayDelivery
from cli.replay.messages import Messages
from cli.replay.plan import Plan
from shared.errors import BuswayError
from shared.resend.ledger import DONE, Ledger
from shared.resend.pipeline_delivery import OPTIONS
from shared.resend.places import place_at
from shared.resend.run import Run
from shared.resend.source import copies
from tests.simulation.journal import SimulatedSink
from tests.simulation.ledger import SimulatedLedgerStore
from tests.simulation.network import entity_of
from tests.simulation.operator_process import OperatorProcess
from tests.simulation.reruns import GROUP
from tests.simulation.topology import configuration

if TYPE_CHECKING:
    from tests.simulation.rerun import RerunWorld


_MEMORY = next(filter(os.path.isdir, ["/dev/shm"]), None)  # noqa: S108 - a folder of its own in it
"""A file system without a disk, None where it is missing."""
_LOOKS = 4
"""How often a run looks at a target that does not answer."""


class RerunReport(NamedTuple):
    """What a command said at its end."""

    reports: Sequence[Report]
    """Of a repair: one for each message."""
    error: BuswayError | None
    problems: Sequence[str] = ()
    """Of a replay: what it did not find, or could not read."""


class RerunProcess(OperatorProcess):
    """One repair, or one run of a replay."""

    _world: "RerunWorld"
    _ledger: Ledger
    has_reported = False
    """Whether it came to its end, so that the operator has its report."""

    def ended(self) -> None:
        """Let the operator know."""
        self._world.operator_ended(self)

    def begins_to_send(self, place: str, names: set[str]) -> None:
        """Note what must not be sent: what is done, what nobody has asked for, and what can be seen at its target."""
        world, target = self._world, entity_of(place)
        for name in names:
            world.senders[target, name] = self
            key = world.keys.get(name)
            if key is None or (target, name) in world.had:
                world.wrong[f"sent to {target} although nobody has asked for it"].add(name)
            elif self._ledger.state(key) in DONE:
                world.wrong[f"sent to {target} again although the ledger has it"].add(name)
            elif (place, name) in self.sent:
                world.wrong[f"sent to {target} again although the answer had come"].add(name)
            elif (target, name) not in self.begun and world.is_seen_at(target, name) and not self._may_be_blind():
                world.wrong[f"sent to {target} although it can be seen there"].add(name)
            self.begun.add((target, name))

    def _may_be_blind(self) -> bool:
        """Return whether so much has gone wrong that a repair may not have been able to look; a replay then ends."""
        return self._world.plan is None and self._world.faults.drawn - self._drawn >= _LOOKS

    async def carry_out(self) -> None:
        """Run the command, and report it."""
        world = self._world
        self._drawn = world.faults.drawn
        self.begun: set[tuple[str, str]] = set()
        reports: list[Report] = []
        problems: list[str] = []
        error: BuswayError | None = None
        store = SimulatedLedgerStore(world.network, self, world.lines)
        plan = world.plan
        self._ledger = Ledger(store, "repair" if plan is None else plan.name, self.clock)
        try:
            if plan is None:
                error = await self._repair(world.manifest, reports)
            else:
                error = await self._replay(plan, problems)
        except BuswayError as raised:
            error = raised
        self.has_reported = error is None
        world.reports.append(RerunReport(reports, error, problems))

    async def _repair(self, manifest: Sequence[Missing], reports: list[Report]) -> BuswayError | None:
        world = self._world
        loaded = configuration(world.topology)
        places = [
            place_at(alias, entity, loaded) for alias, _, entity in (copy.partition("/") for copy in world.rerun.copies)
        ]
        repair = Repair(loaded, world.settings, places, self._ledger, reports.append, consumer_group=GROUP)
        async with self._ledger, self.outputs() as outputs:
            sink = SimulatedSink(world, self)
            async with repair.opened(loaded, world.settings, outputs, sink=sink):
                return await repair.send_all(manifest)

    async def _replay(self, plan: Plan, problems: list[str]) -> BuswayError | None:
        world = self._world
        loaded = configuration(world.topology)
        delivery = ReplayDelivery(plan, self._ledger, loaded, world.settings)
        task = next(task for task in loaded.tasks if task.task == plan.task)
        with tempfile.TemporaryDirectory(dir=_MEMORY) as name:
            plan.journal = name
            for blob, (_, content) in world.blobs.items():
                (Path(name) / blob).parent.mkdir(parents=True, exist_ok=True)
                (Path(name) / blob).write_bytes(content)
            messages = Messages(plan, task, loaded, world.settings, Path(name), clock=self.clock)
            async with self._ledger, self.outputs() as outputs:
                sink = SimulatedSink(world, self)
                async with delivery.opened(loaded, world.settings, outputs, sink=sink, replay=plan.identity):
                    run = Run(copies(messages.pages()), delivery, None, OPTIONS)
                    result = await run.run()
        problems += [*messages.not_found, *messages.unread]
        return result.error
