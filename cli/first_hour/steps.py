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
from typing import TYPE_CHECKING, NamedTuple

from cli.first_hour.answers import Verdict
from cli.first_hour.passage import MARK, Passage, most_deliveries
from cli.topology.sites import Access, open_client
from shared.amqp.sections import Sections
from shared.amqp.values import string
from shared.assembly.outputs import open_outputs
from shared.errors import TargetRefused
from shared.message.arrival import Arrival
from shared.message.message import Message
from shared.protocols import Outgoing
from shared.tasks.files import Configuration

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

_PARTITIONED = f"{MARK}-partitioned"
_COLD_SECONDS = 180.0
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
    access: Access
    with_sessions: Passage | None
    without_sessions: Passage | None
    resource_group: str
    app: str
    minute: float
    """Seconds that a minute of an outage takes: 60, or fewer to try the script itself."""
    messages: int
    patience: float = _COLD_SECONDS
    """Seconds that messages may take after what disturbed them."""

    @property
    def passages(self) -> list[Passage]:
        """The ways with and without sessions, as far as there are any."""
        found = [passage for passage in (self.with_sessions, self.without_sessions) if passage is not None]
        if not found:
            raise NotTried("no task leads from a queue or subscription to a queue of Service Bus")
        return found

    @property
    def place(self) -> tuple[str, ...]:
        """The options that name the app on Azure."""
        if not self.resource_group or not self.app:
            raise NotTried("needs the app on Azure: --resource-group and --name")
        return "--resource-group", self.resource_group, "--name", self.app


class Step(NamedTuple):
    """A step: what it is called, the command that a person would run, and what it does."""

    name: str
    command: str
    run: Callable[[Scene], Awaitable[Found]]


async def _ran(*command: str) -> tuple[int, list[str]]:
    """Run a command and return its exit code and its lines."""
    words = [sys.executable, "-m", "cli", *command[1:]] if command[0] == "busway" else list(command)
    try:
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotTried(f"{command[0]} is not installed, or not on the PATH") from None
    return done.returncode, [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


async def alerts(scene: Scene) -> Found:
    """Look whether every rule was deployed."""
    group = scene.place[1]
    query = "[].{name: name, enabled: enabled}"
    code, lines = await _ran(
        "az", "monitor", "scheduled-query", "list", "--resource-group", group, "--query", query, "--output", "json"
    )
    if code != 0:
        return Found(False, lines)
    rules = json.loads("\n".join(lines))
    return Found(
        bool(rules) and all(rule["enabled"] for rule in rules),
        [f"{len(rules)} rules: {', '.join(sorted(rule['name'] for rule in rules))}"],
    )


async def functions(scene: Scene) -> Found:
    """Look whether Azure knows the functions of the tasks."""
    code, lines = await _ran("busway", "functions", *scene.place, "--config", str(scene.folder))
    return Found(code == 0, lines)


async def smoke(scene: Scene) -> Found:
    """Send a message through each route."""
    code, lines = await _ran("busway", "smoke", "--yes", "--wait", str(scene.patience), "--config", str(scene.folder))
    return Found(code == 0, lines)


async def backlog(scene: Scene) -> Found:
    """Send many messages at once, and look at the instances until all have arrived."""
    passage = scene.passages[0]
    began = time.monotonic()
    await asyncio.to_thread(passage.send, scene.messages)
    arrived = await passage.all_arrived(20 * scene.minute + scene.patience)
    seconds = time.monotonic() - began
    _, status = await _ran("busway", "status", passage.task.task, "--json", "--config", str(scene.folder))
    lines = [f"{len(arrived):,} of {passage.sent:,} messages arrived in {seconds:.0f} s", _instances(status)]
    return Found(len(arrived) == passage.sent, [*lines, *_twice(passage, arrived)])


def _instances(status: Sequence[str]) -> str:
    try:
        (task,) = json.loads("\n".join(status))["tasks"]
    except (ValueError, KeyError):
        return f"busway status: {' '.join(status)[:200]}"
    return f"busway status: {task['state']}, {task['instances']} instances have had messages, {task['lanes']} lanes"


def outage(minutes: int) -> Callable[[Scene], Awaitable[Found]]:
    """Return a step in which the targets refuse messages for *minutes*: each hold of a batch costs one delivery."""

    async def run(scene: Scene) -> Found:
        results = await asyncio.gather(
            *(
                _away(passage, minutes * scene.minute, most_holds(minutes, passage.task.limits.hold), scene.patience)
                for passage in scene.passages
            )
        )
        return Found(
            all(result.is_expected for result in results), [line for result in results for line in result.lines]
        )

    return run


def most_holds(minutes: int, hold: timedelta) -> int:
    """Return how often a batch may be held to its end in an outage."""
    return timedelta(minutes=minutes) // hold


async def _away(passage: Passage, seconds: float, most: int, patience: float) -> Found:
    await asyncio.to_thread(passage.set_target, "SendDisabled")
    try:
        await asyncio.to_thread(passage.send, _OUTAGE_MESSAGES)
        await asyncio.sleep(seconds)
        waiting, dead = await passage.at_source(), await passage.given_up()
    finally:
        await asyncio.to_thread(passage.set_target, "Active")
    arrived = await passage.all_arrived(patience)
    kind = "with sessions" if passage.task.source.sessions else "without sessions"
    deliveries = most_deliveries(waiting)
    twice = _twice(passage, arrived)
    way = f"{passage.task.task} ({kind}), {seconds / 60:.0f} minutes away"
    lines = [
        f"{way}: {len(waiting)} wait at the source with up to {deliveries} deliveries, {len(dead)} dead letters",
        f"{way}: {len(arrived)} of {passage.sent} have arrived",
        *twice,
    ]
    return Found(len(arrived) == passage.sent and not dead and not twice and deliveries <= most, lines)


async def partitioned(scene: Scene) -> Found:
    """Send messages with ten keys to a new partitioned queue, as tasks send them."""
    passage = scene.passages[0]
    alias = passage.target.alias
    connection = scene.configuration.connections[alias]
    with open_client(alias, connection, scene.access) as client:
        await asyncio.to_thread(client.create_queue, _PARTITIONED, enable_partitioning=True)
        outputs = open_outputs(scene.configuration, scene.access.settings)
        try:
            messages = [_keyed(number, passage) for number in range(100)]
            errors = await outputs[alias].send(_PARTITIONED, messages, timeout_seconds=60)
            count = await _counted(client, len(messages))
        finally:
            for output in outputs.values():
                await output.close()
            await asyncio.to_thread(client.delete_queue, _PARTITIONED)
    refused = [str(error) for error in errors if error is not None]
    return Found(not refused and count == len(messages), [f"{count} of {len(messages)} accepted", *refused[:3]])


async def _counted(client: "ServiceBusAdministrationClient", expected: int) -> int:
    """Return the count of the partitioned queue, which is some seconds old, once it is the *expected* one or stays."""
    end = time.monotonic() + _COUNT_SECONDS
    while True:
        found = await asyncio.to_thread(client.get_queue_runtime_properties, _PARTITIONED)
        count = found.active_message_count or 0
        if count == expected or time.monotonic() > end:
            return count
        await asyncio.sleep(_COUNT_PAUSE_SECONDS)


def _keyed(number: int, passage: Passage) -> Outgoing:
    message = Message(Sections(), Arrival(passage.source.origin))
    message.body = b"{}"
    message.message_id = string(f"{MARK}-{passage.run}-partitioned-{number}")
    message.set_annotations({"x-opt-partition-key": string(str(number % 10))})
    return Outgoing(message.encode(), *message.envelope())


async def publish(scene: Scene) -> Found:
    """Publish the app while messages arrive, and count those that come twice."""
    passage = scene.passages[0]
    app = scene.place[3]
    package = scene.folder.resolve().parent / "build/app"
    if not package.is_dir():
        raise NotTried(f"{package} is missing: busway package")
    command = ("func", "azure", "functionapp", "publish", app, "--python")
    publishing = asyncio.create_task(asyncio.to_thread(_published, command, package))
    while not publishing.done():
        await asyncio.to_thread(passage.send, 50)
        await asyncio.sleep(1)
    code, last = await publishing
    arrived = await passage.all_arrived(10 * scene.minute + scene.patience)
    lines = [f"exit code {code}: {last}", f"{len(arrived)} of {passage.sent} have arrived"]
    # With the update strategy Recreate some come twice; drain first where that matters.
    return Found(code == 0 and len(arrived) == passage.sent, [*lines, *_twice(passage, arrived)])


def _published(command: Sequence[str], package: Path) -> tuple[int, str]:
    try:
        done = subprocess.run(command, cwd=package, capture_output=True, text=True, check=False)  # noqa: S603 - the page's own command
    except FileNotFoundError:
        raise NotTried(f"{command[0]} is not installed, or not on the PATH") from None
    return done.returncode, (done.stdout + done.stderr).strip().rpartition("\n")[2]


async def pause(scene: Scene) -> Found:
    """Pause a task, look at what waits, and resume it."""
    passage = scene.passages[0]
    admin = [f"--admin={alias}={address}" for alias, address in scene.access.addresses.items()]
    options = [passage.task.task, "--config", str(scene.folder), *admin]
    code, said = await _ran("busway", "pause", *options, "--reason", "first hour", "--yes")
    if code != 0:
        return Found(False, said)
    try:
        await asyncio.to_thread(passage.send, _OUTAGE_MESSAGES)
        await asyncio.sleep(scene.minute)
        waiting = await passage.at_source()
    finally:
        code, resumed = await _ran("busway", "resume", *options, "--yes")
    arrived = await passage.all_arrived(scene.patience)
    deliveries = most_deliveries(waiting)
    lines = [
        *said,
        f"{len(waiting)} of {_OUTAGE_MESSAGES} waited with up to {deliveries} deliveries",
        *resumed,
        f"{len(arrived)} of {passage.sent} have arrived",
    ]
    is_expected = code == 0 and len(waiting) == _OUTAGE_MESSAGES and deliveries == 0
    return Found(is_expected and len(arrived) == passage.sent, [*lines, *_twice(passage, arrived)])


def _twice(passage: Passage, arrived: dict[str, int]) -> list[str]:
    """Return a line about the messages that arrived more than once, none without any."""
    twice = [identity for identity, count in arrived.items() if count > 1]
    return [f"{passage.task.task}: {len(twice)} messages arrived more than once"] if twice else []


SCRIPT = "tools/first-hour --resource-group GROUP --name APP --only"
STEPS = (
    Step("alerts", "az monitor scheduled-query list --resource-group GROUP --output table", alerts),
    Step("functions", "busway functions --resource-group GROUP --name APP", functions),
    Step("smoke", "busway smoke --yes", smoke),
    Step("backlog", f"{SCRIPT} 4", backlog),
    Step("target away for 11 minutes", f"{SCRIPT} 5", outage(11)),
    Step("target away for 20 minutes", f"{SCRIPT} 6", outage(20)),
    Step("target away for 60 minutes", f"{SCRIPT} 7", outage(60)),
    Step("partitioned target", f"{SCRIPT} 8", partitioned),
    Step("publish under traffic", f"{SCRIPT} 9", publish),
    Step("pause", f"{SCRIPT} 10", pause),
)
NOT_TRIED = (NotTried, TargetRefused)
VERDICTS = {True: Verdict.AS_EXPECTED, False: Verdict.NOT_AS_EXPECTED}
