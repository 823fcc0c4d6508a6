"""The ten steps, in the order of harm. docs/first-hour.md says what each prints and what to do if it does not."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Self

from cli.first_hour.way import MARK, Way, most_deliveries
from cli.topology.sites import open_client
from shared.tasks.files import Configuration

_PARTITIONED = f"{MARK}-partitioned"
_COLD_SECONDS = 180.0
"""How long messages may take after what disturbed them."""
_OUTAGE_MESSAGES = 20
_COUNT_SECONDS, _COUNT_PAUSE_SECONDS = 10.0, 0.5


class NotTried(Exception):
    """The step needs something that is not there; the text says what."""


class Found(NamedTuple):
    """What a step has found: whether it is as expected, and the lines that show it."""

    is_expected: bool
    lines: Sequence[str]


@dataclass(frozen=True)
class Scene:
    """What the steps work on."""

    configuration: Configuration
    folder: Path
    possible_ways: Sequence[Way]
    """At most one with sessions and one without."""
    resource_group: str
    app: str
    minute: float
    """Seconds that a minute of an outage takes: 60, or fewer to try the script itself."""
    messages: int

    @property
    def ways(self) -> Sequence[Way]:
        """The ways, of which there is one at least."""
        if not self.possible_ways:
            raise NotTried("no task leads from a queue or subscription to a queue of Service Bus")
        return self.possible_ways

    def check_place(self) -> None:
        """Raise NotTried without the app on Azure."""
        if not self.resource_group or not self.app:
            raise NotTried("needs the app on Azure: --resource-group and --name")


async def _ran(*command: str, folder: Path | None = None) -> tuple[int, list[str]]:
    """Run a command and return its exit code and its lines."""
    words = [sys.executable, "-m", "cli", *command[1:]] if command[0] == "busway" else list(command)
    try:
        done = await asyncio.to_thread(subprocess.run, words, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotTried(f"{command[0]} is not installed, or not on the PATH") from None
    return done.returncode, [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


def command(*words: str) -> Callable[[Scene], Awaitable[Found]]:
    """Return a step that runs a command, with GROUP and APP in it, and expects that it succeeds."""

    async def run(scene: Scene) -> Found:
        place = {"GROUP": scene.resource_group, "APP": scene.app}
        if not {*words}.isdisjoint(place):
            scene.check_place()
        own = ("--config", str(scene.folder)) if words[0] == "busway" else ()
        code, lines = await _ran(*(place.get(word, word) for word in words), *own)
        return Found(code == 0, lines)

    return run


async def backlog(scene: Scene) -> Found:
    """Send many messages at once, and look at the instances until all have arrived."""
    way = scene.ways[0]
    began = time.monotonic()
    await way.send(scene.messages)
    arrived = await way.all_arrived(20 * scene.minute + _COLD_SECONDS)
    seconds = time.monotonic() - began
    _, status = await _ran("busway", "status", way.task.task, "--json", "--config", str(scene.folder))
    try:
        (task,) = json.loads("\n".join(status))["tasks"]
        shown = f"{task['state']}, {task['instances']} instances have had messages, {task['lanes']} lanes"
    except (ValueError, KeyError):
        shown = " ".join(status)[:200]
    lines = [f"{len(arrived):,} of {way.sent:,} messages arrived in {seconds:.0f} s", f"busway status: {shown}"]
    return Found(len(arrived) == way.sent, [*lines, *_twice(way, arrived)])


def outage(minutes: int) -> Callable[[Scene], Awaitable[Found]]:
    """Return a step in which the targets refuse messages for *minutes*: each hold of a batch costs one delivery."""

    async def run(scene: Scene) -> Found:
        seconds = minutes * scene.minute
        results = await asyncio.gather(
            *(_away(way, seconds, most_holds(minutes, way.task.limits.hold)) for way in scene.ways)
        )
        lines = [line for result in results for line in result.lines]
        return Found(all(result.is_expected for result in results), lines)

    return run


def most_holds(minutes: int, hold: timedelta) -> int:
    """Return how often a batch may be held to its end in an outage."""
    return timedelta(minutes=minutes) // hold


async def _away(way: Way, seconds: float, most: int) -> Found:
    with way.target_closed():
        await way.send(_OUTAGE_MESSAGES)
        await asyncio.sleep(seconds)
        waiting, dead = await way.at_source(), await way.given_up()
    arrived = await way.all_arrived(_COLD_SECONDS)
    kind = "with sessions" if way.task.source.sessions else "without sessions"
    deliveries, twice = most_deliveries(waiting), _twice(way, arrived)
    name = f"{way.task.task} ({kind}), {seconds / 60:.0f} minutes away"
    lines = [
        f"{name}: {len(waiting)} wait at the source with up to {deliveries} deliveries, {len(dead)} dead letters",
        f"{name}: {len(arrived)} of {way.sent} have arrived",
        *twice,
    ]
    return Found(len(arrived) == way.sent and not dead and not twice and deliveries <= most, lines)


async def partitioned(scene: Scene) -> Found:
    """Send messages with ten keys to a new partitioned queue, as tasks send them."""
    way, total = scene.ways[0], 100
    alias = way.target.alias
    with open_client(alias, scene.configuration.connections[alias]) as client:
        await asyncio.to_thread(client.create_queue, _PARTITIONED, enable_partitioning=True)
        try:
            errors = await way.send_keyed(alias, _PARTITIONED, total)
            # The count is some seconds old.
            end = time.monotonic() + _COUNT_SECONDS
            while True:
                found = await asyncio.to_thread(client.get_queue_runtime_properties, _PARTITIONED)
                if found.active_message_count == total or time.monotonic() > end:
                    break
                await asyncio.sleep(_COUNT_PAUSE_SECONDS)
        finally:
            await asyncio.to_thread(client.delete_queue, _PARTITIONED)
    count = found.active_message_count or 0
    return Found(not errors and count == total, [f"{count} of {total} accepted", *map(str, errors[:3])])


async def publish(scene: Scene) -> Found:
    """Publish the app while messages arrive, and count those that come twice."""
    way = scene.ways[0]
    scene.check_place()
    package = scene.folder.resolve().parent / "build/app"
    if not package.is_dir():
        raise NotTried(f"{package} is missing: busway package")
    command = ("func", "azure", "functionapp", "publish", scene.app, "--python")
    publishing = asyncio.create_task(_ran(*command, folder=package))
    while not publishing.done():
        await way.send(50)
        await asyncio.sleep(1)
    code, said = await publishing
    arrived = await way.all_arrived(10 * scene.minute + _COLD_SECONDS)
    lines = [f"exit code {code}: {(said or [''])[-1]}", f"{len(arrived)} of {way.sent} have arrived"]
    # With the update strategy Recreate some come twice; drain first where that matters.
    return Found(code == 0 and len(arrived) == way.sent, [*lines, *_twice(way, arrived)])


async def pause(scene: Scene) -> Found:
    """Pause a task, look at what waits, and resume it."""
    way = scene.ways[0]
    options = [way.task.task, "--config", str(scene.folder), "--yes"]
    code, said = await _ran("busway", "pause", *options, "--reason", "first hour")
    if code != 0:
        return Found(False, said)
    try:
        await way.send(_OUTAGE_MESSAGES)
        await asyncio.sleep(scene.minute)
        waiting = await way.at_source()
    finally:
        code, resumed = await _ran("busway", "resume", *options)
    arrived = await way.all_arrived(_COLD_SECONDS)
    deliveries = most_deliveries(waiting)
    lines = [
        *said,
        f"{len(waiting)} of {_OUTAGE_MESSAGES} waited with up to {deliveries} deliveries",
        *resumed,
        f"{len(arrived)} of {way.sent} have arrived",
    ]
    is_expected = code == 0 and len(waiting) == _OUTAGE_MESSAGES and deliveries == 0
    return Found(is_expected and len(arrived) == way.sent, [*lines, *_twice(way, arrived)])


def _twice(way: Way, arrived: dict[str, int]) -> list[str]:
    """Return a line about the messages that arrived more than once, none without any."""
    twice = [identity for identity, count in arrived.items() if count > 1]
    return [f"{way.task.task}: {len(twice)} messages arrived more than once"] if twice else []


class Step(NamedTuple):
    """A step: what it is called, the command that a person would run, and what it does."""

    name: str
    command: str
    run: Callable[[Scene], Awaitable[Found]]

    @classmethod
    def of(cls, name: str, text: str) -> Self:
        """Return a step that only runs a command."""
        return cls(name, text, command(*text.split()))


SCRIPT = "tools/first-hour --resource-group GROUP --name APP --only"
STEPS = (
    Step.of("alerts", "az monitor scheduled-query list --resource-group GROUP --output table"),
    Step.of("functions", "busway functions --resource-group GROUP --name APP"),
    Step.of("smoke", "busway smoke --yes"),
    Step("backlog", f"{SCRIPT} 4", backlog),
    Step("target away for 11 minutes", f"{SCRIPT} 5", outage(11)),
    Step("target away for 20 minutes", f"{SCRIPT} 6", outage(20)),
    Step("target away for 60 minutes", f"{SCRIPT} 7", outage(60)),
    Step("partitioned target", f"{SCRIPT} 8", partitioned),
    Step("publish under traffic", f"{SCRIPT} 9", publish),
    Step("pause", f"{SCRIPT} 10", pause),
)
