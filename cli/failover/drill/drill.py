"""
The drill: publish, cut a site, switch, restore the site, fail back, and count.

The two sites are separate processes, so that one can be killed, with the Functions host between them.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from busway import PACKAGES, ROOT
from cli.children import Child
from cli.failover.configuration import open_failover
from cli.failover.contents import EntityContents, contents_of
from cli.failover.drill.applications import ENTITY, SESSIONS, Applications
from cli.failover.drill.observations import Observations, Tally, tally
from cli.failover.failback import FailbackSteps
from cli.signals import beside
from cli.stack import busway
from shared.clock import SystemClock
from shared.resend.places import Place
from shared.tasks.failover import RECEIVE, SEND

PRIMARY, SECONDARY = "west", "east"

_SITE = Path(__file__).parent / "site"
_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.2
# How long nothing may arrive before the rest counts as lost.
_STALLED_SECONDS = 15.0
_QUIET_SECONDS = 2.0


@dataclass
class Sites:
    """The running sites: their connection strings, and the folder of their configuration."""

    folder: Path
    connection_strings: dict[str, str]
    children: dict[str, Child]
    work: Path

    async def cut(self, name: str) -> None:
        """End a site as a power failure would."""
        child = self.children.pop(name)
        os.kill(child.pid, signal.SIGKILL)
        await child.stop()

    async def restore(self, name: str) -> None:
        """Restart a site on its port, with the messages on its disk."""
        port = re.search(r"localhost:(\d+)|127\.0\.0\.1:(\d+)", self.connection_strings[name])
        assert port is not None  # noqa: S101 - the broker reported it
        self.children[name], _ = await _broker(name, self.work, int(port[1] or port[2]))


@contextlib.asynccontextmanager
async def running_sites(work: Path) -> AsyncIterator[Sites]:
    """Start both sites and the host, with everything that they write in *work*; always end them."""
    for name in ("config", PRIMARY, SECONDARY):
        shutil.rmtree(work / name, ignore_errors=True)
    folder = work / "config"
    shutil.copytree(_SITE, folder)
    sites = Sites(folder, {}, {}, work)
    try:
        for name in (PRIMARY, SECONDARY):
            sites.children[name], sites.connection_strings[name] = await _broker(name, work, 0)
        settings = {name.upper(): text for name, text in sites.connection_strings.items()}
        environment = {**settings, "BUSWAY_CONFIG": str(folder), "PYTHONPATH": PACKAGES}
        host = await Child.start("host", busway("host"), work / "host.log", ROOT, environment)
        sites.children["host"] = host
        await host.matches(r"^ready(.*)$", 1, _READY_SECONDS)
        yield sites
    finally:
        for child in reversed(list(sites.children.values())):
            await child.stop()


async def _broker(name: str, work: Path, port: int) -> tuple[Child, str]:
    config = work / "config" / "entities" / f"{name}.json"
    ports = ["--port", str(port), "--admin-port", "0"]
    command = [*busway("broker"), "--config", str(config), *ports, "--data", str(work / name)]
    child = await Child.start(name, command, work / f"{name}.log", ROOT, {"PYTHONPATH": PACKAGES})
    try:
        (line,) = await child.matches(r"^ready (\S+) (.+)$", 1, _READY_SECONDS)
    except BaseException:
        await child.stop()
        raise
    return child, line[2]


@dataclass(frozen=True)
class Plan:
    """The parameters of a drill: messages in each part, their rate per second, and the operator's time to decide."""

    messages: int
    rate: float
    decide_seconds: float
    is_disaster: bool


@dataclass(frozen=True)
class Result:
    """
    What was observed.

    Units:  seconds since the cut; failback_seconds since the site was restored, until the last consumer uses it.
    """

    tally: Tally
    noticed_seconds: float | None
    switched_seconds: float
    publishers_seconds: float | None
    consumers_seconds: float | None
    failback_seconds: float | None
    refusals: int
    held_back: int
    """The highest number of messages that the failback had to wait for."""
    left: Sequence[EntityContents]


async def run(plan: Plan, work: Path, report: Callable[[str], None]) -> Result:
    """Run the drill in *work*; raises ChildFailed when a process ends unexpectedly."""
    report("Starting two sites and the Functions host …")
    async with running_sites(work) as sites:
        observations = Observations()
        applications = Applications(sites.folder / "endpoints.json", sites.connection_strings, observations)
        drill = _Drill(plan, sites, observations, applications, report)
        return await beside(applications.consume(), drill.run())


@dataclass
class _Drill:
    plan: Plan
    sites: Sites
    seen: Observations
    applications: Applications
    print: Callable[[str], None]
    clock: SystemClock = field(default_factory=SystemClock)
    refusals: int = 0
    held_back: int = 0

    def __post_init__(self) -> None:
        self.register = open_failover(self.sites.folder, self.clock).register

    async def run(self) -> Result:
        count, rate = self.plan.messages, self.plan.rate
        async with AsyncExitStack() as ends:
            await self.applications.publish(0, count, rate)
            # The site is cut while messages are on their way.
            publishing = asyncio.create_task(self.applications.publish(count, count, rate))
            ends.callback(publishing.cancel)
            await self._until(lambda: count + count // 4 in self.seen.accepted or publishing.done())
            cut = self.applications.second()
            await self.sites.cut(PRIMARY)
            self._report(cut, f"{PRIMARY} is cut: {len(self.seen.accepted)} messages accepted")
            await self._until(lambda: any(second >= cut for second in self.seen.failed_sends) or publishing.done())
            await asyncio.sleep(self.plan.decide_seconds)
            self.register.write({SEND: SECONDARY, RECEIVE: SECONDARY}, self.register.read())
            switched = self.applications.second()
            self._report(switched, f"publishers and consumers are switched to {SECONDARY}")
            await publishing
            await self._until(lambda: self.seen.first_delivered(SECONDARY, SESSIONS, cut) is not None)
            failback = None if self.plan.is_disaster else await self._go_back()
            await self._until(lambda: self.seen.is_complete)
            await asyncio.sleep(_QUIET_SECONDS)
        running = [site for site in (PRIMARY, SECONDARY) if site in self.sites.children]
        left = [replace(each, entity=f"{site}/{each.entity}") for site in running for each in await self._look(site)]
        noticed = min((second for second in self.seen.failed_sends if second >= cut), default=None)
        return Result(
            tally(self.seen),
            _since(cut, noticed),
            switched - cut,
            _since(cut, self.seen.first_accepted(SECONDARY, cut)),
            _since(cut, self.seen.first_delivered(SECONDARY, SESSIONS, cut)),
            failback,
            self.refusals,
            self.held_back,
            left,
        )

    async def _go_back(self) -> float | None:
        await self.sites.restore(PRIMARY)
        restored = self.applications.second()
        self._report(restored, f"{PRIMARY} is restored, with the messages on its disk")
        first = 2 * self.plan.messages
        publishing = asyncio.create_task(self.applications.publish(first, self.plan.messages, self.plan.rate))
        way = FailbackSteps(self.register, PRIMARY, [SECONDARY], self._look, self.clock, self.clock.now())
        try:
            while True:
                back = await way.step()
                self.held_back = max(self.held_back, back.local)
                if back.is_done:
                    break
                if not self.refusals:
                    self._report(self.applications.second(), f"publishers are back in {PRIMARY}; {back.waits_for}")
                self.refusals += 1
                await asyncio.sleep(_LOOK_SECONDS)
            moved = self.applications.second()
            self._report(moved, f"consumers are switched back to {PRIMARY}")
            await publishing
        finally:
            publishing.cancel()
        await self._until(lambda: self.seen.first_delivered(PRIMARY, SESSIONS, moved) is not None)
        return _since(restored, self.seen.first_delivered(PRIMARY, SESSIONS, moved))

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Return when *holds* returns true, or nothing has been accepted or delivered for a while."""
        before, since = -1, self.applications.second()
        while not holds():
            now = len(self.seen.deliveries) + len(self.seen.accepted) + len(self.seen.failed_sends)
            if now != before:
                before, since = now, self.applications.second()
            elif self.applications.second() - since > _STALLED_SECONDS:
                return
            await asyncio.sleep(_LOOK_SECONDS / 4)

    async def _look(self, site: str) -> list[EntityContents]:
        return [await contents_of(Place(site, site, site, ENTITY), PRIMARY, self.sites.connection_strings)]

    def _report(self, second: float, what: str) -> None:
        self.print(f"{second:5.1f} s  {what}")


def _since(start: float, second: float | None) -> float | None:
    return None if second is None else second - start
