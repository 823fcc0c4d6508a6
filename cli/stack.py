"""
Azure on this machine: Azurite, the broker and the Functions host as three processes.

Azurite and the recorded webhooks come from npm; `make` or the first use installs them.
"""

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote

from busway import IS_CHECKOUT, PACKAGES, ROOT
from cli.children import Child
from cli.local_faults import PID_FILE
from cli.signals import beside, together
from shared.ends.namespace import ADMINISTRATION_SUFFIX
from shared.errors import ConfigError, Problem, TargetUnavailable

_LISTS = ("package.json", "package-lock.json")
_NODE = "Azurite needs Node.js 20 or later with npm, see https://nodejs.org"


def node_modules() -> Path:
    """
    Return the folder with the packages: of the checkout, or in the user's cache, which npm then fills once.

    Raises ConfigError if there is no Node.js or `make` has not installed the packages, TargetUnavailable if npm fails.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Another version of the packages has another folder.
    version = hashlib.sha256((ROOT / _LISTS[1]).read_bytes()).hexdigest()[:12]
    folder = (ROOT if IS_CHECKOUT else caches / "busway" / version) / "node_modules"
    wanted = ("node",) if IS_CHECKOUT or folder.is_dir() else ("node", "npm")
    problems = [Problem(program, "is not installed", _NODE) for program in wanted if shutil.which(program) is None]
    if IS_CHECKOUT and not (folder / "azurite").is_dir():
        problems.append(Problem(str(folder), "Azurite is not installed", "npm ci --ignore-scripts"))
    if problems:
        raise ConfigError(problems)
    if not folder.is_dir():
        _install(folder.parent)
    return folder


def _install(folder: Path) -> None:
    print(f"Installing Azurite with npm into {folder}, once …", flush=True)
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    made.mkdir(parents=True)
    try:
        for name in _LISTS:
            shutil.copyfile(ROOT / name, made / name)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise TargetUnavailable(f"npm ci in {made}: {lines[0]}")
        # Another process may have been faster.
        if not folder.is_dir():
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


_AZURITE = Path("azurite/dist/src/azurite.js")
_READY_SECONDS = 60.0
# Azurite's account, which is documented and never changes.
_ACCOUNT = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # noqa: E501
_SERVICES = ("Blob", "Queue", "Table")


@dataclass(frozen=True)
class Stack:
    """The running processes and how to reach them; connection strings by app setting."""

    children: Sequence[Child]
    connection_strings: dict[str, str]
    storage: str
    functions: Sequence[str]
    administration: dict[str, str]
    """The addresses for administration clients, by app setting."""
    status: str | None = None
    """Address of the app's status, None if the app has no HTTP functions."""

    @property
    def tasks(self) -> str:
        """The names of the functions as text, the lanes of a task as their number."""
        lanes = Counter(re.sub(r"-lane-[0-9]+$", "", function) for function in self.functions)
        return ", ".join(name if count == 1 else f"{name} ({count} lanes)" for name, count in lanes.items())

    async def while_it_runs[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Return what *work* returns; raises ChildFailed as soon as one of the processes ends."""
        return await beside(together(*(child.ended() for child in self.children)), work)


@dataclass(frozen=True)
class Replacements:
    """What the stack replaces besides the namespaces, by app setting."""

    stores: Collection[str] = ()
    """App settings that name Azurite."""
    queues: Collection[str] = ()
    """Queues that are created in it."""
    urls: Collection[str] = ()
    """App settings of brokers of kind amqp, which a namespace replaces."""
    topics: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Topics of Kafka clusters."""
    webhooks: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Topics of Event Grid."""


@contextlib.asynccontextmanager
async def running_stack(
    namespaces: Mapping[str, Path],
    logs: Path,
    replaced: Replacements | None = None,
    *,
    app: Path = ROOT,
    folder: Path | None = None,
    port: int = 0,
    storage: Path | None = None,
) -> AsyncIterator[Stack]:
    """
    Start the three processes, and always stop them in the reverse order.

    *namespaces* are Config.json files by the app setting in which the host finds the connection string. *folder* is the
    absolute path of the configuration; without it the app chooses. With *port* 0 all ports are free ones. Without
    *storage* Azurite keeps its data in memory. With topics to replace, a Kafka cluster in memory is a fourth process;
    for webhooks an Event Grid in this process delivers its topics to the app. Raises as `node_modules`, and
    ChildFailed if a process does not become ready.
    """
    replaced = replaced or Replacements()
    keeping = ["--inMemoryPersistence"] if storage is None else ["--location", str(storage)]
    azurite_ports = [] if port else [f"--{service.lower()}Port=0" for service in _SERVICES]
    quiet = ["--disableTelemetry", "--skipApiVersionCheck"]
    azurite_command = ["node", str(node_modules() / _AZURITE), *quiet, *keeping, *azurite_ports]
    async with contextlib.AsyncExitStack() as ends:

        async def started(
            name: str, command: Sequence[str], place: Path, environment: dict[str, str], pid_file: Path | None = None
        ) -> Child:
            child = await Child.start(name, command, logs / f"{name}.log", place, environment, pid_file=pid_file)
            ends.push_async_callback(child.stop)
            return child

        others: list[Child] = []
        packages = {"PYTHONPATH": PACKAGES}
        azurite = await started("azurite", azurite_command, ROOT, {})
        configs = list(dict.fromkeys(namespaces.values()))
        files = [argument for config in configs for argument in ("--config", str(config.resolve()))]
        broker = await started("broker", [*busway("broker"), *files, "--port", str(port)], ROOT, packages)
        lines = await broker.matches(r"^ready (\S+) (.+)$", len(configs), _READY_SECONDS)
        strings = {config: line[2] for config, line in zip(configs, lines, strict=True)}
        settings = {
            setting: amqp_url(strings[config]) if setting in replaced.urls else strings[config]
            for setting, config in namespaces.items()
        }
        lines = await broker.matches(r"^admin (\S+) (.+)$", len(configs), _READY_SECONDS)
        addresses = {config: line[2] for config, line in zip(configs, lines, strict=True)}
        administration = {setting: addresses[config] for setting, config in namespaces.items()}
        storage_string = await _storage_connection_string(azurite)
        settings |= dict.fromkeys(replaced.stores, storage_string)
        if replaced.queues:
            await asyncio.to_thread(_create_queues, storage_string, replaced.queues)
        if replaced.topics:
            names = sorted({each for found in replaced.topics.values() for each in found})
            kafka = await started("kafka", [sys.executable, "-m", "cli.local_services.kafka", *names], ROOT, packages)
            (line,) = await kafka.matches(r"^ready (\S+)$", 1, _READY_SECONDS)
            settings |= dict.fromkeys(replaced.topics, line[1])
            others.append(kafka)
        grids: dict[str, Any] = {}
        for setting in replaced.webhooks:
            # Import lazily: only configurations with Event Grid need a web server.
            from cli.local_services.event_grid import EventGrid

            grids[setting] = await ends.enter_async_context(EventGrid(token_urlsafe()))
        settings |= {setting: grid.setting() for setting, grid in grids.items()}
        administered = {f"{setting}{ADMINISTRATION_SUFFIX}": address for setting, address in administration.items()}
        environment = {**settings, **administered, "AzureWebJobsStorage": storage_string, **packages}
        if folder is not None:
            environment["BUSWAY_CONFIG"] = str(folder)
        # A host that was killed starts again at the same address.
        with socket.create_server(("127.0.0.1", 0)) as server:
            ports = [] if port else ["--http-port", str(server.getsockname()[1])]
        host = await started("host", [*busway("host"), *ports], app, environment, logs / PID_FILE)
        (line,) = await host.matches(r"^ready(.*)$", 1, _READY_SECONDS)
        http = host.match(r"^http (\S+)$")
        address = "" if http is None else http[1]
        for setting, grid in grids.items() if address else ():
            for name in replaced.webhooks[setting]:
                await grid.subscribe_at(name, f"{address}/api/events/{name}")
        status = None if http is None else f"{http[1]}/api/status"
        yield Stack((azurite, broker, *others, host), settings, storage_string, line[1].split(), administration, status)


def amqp_url(connection_string: str) -> str:
    """Return the URL with which a client of any AMQP 1.0 broker reaches a namespace of the local broker."""
    parts = dict(part.split("=", 1) for part in connection_string.split(";") if "=" in part)
    user, password = (quote(parts[f"SharedAccessKey{end}"], safe="") for end in ("Name", ""))
    return f"amqp://{user}:{password}@{parts['Endpoint'].removeprefix('sb://').rstrip('/')}"


def busway(command: str) -> list[str]:
    """Return how a command is started as a process."""
    return [sys.executable, "-m", "cli", command]


def _create_queues(storage: str, queues: Collection[str]) -> None:
    # Import lazily: only configurations with storage queues need this SDK.
    from azure.core.exceptions import ResourceExistsError

    from shared.ends.storage_queue.clients import synchronous_service

    with synchronous_service("storage", {"storage": storage}) as service:
        for queue in queues:
            with contextlib.suppress(ResourceExistsError):
                service.create_queue(queue)


async def _storage_connection_string(azurite: Child) -> str:
    parts = [_ACCOUNT]
    for service in _SERVICES:
        pattern = rf"Azurite {service} service is successfully listening at (\S+)"
        (line,) = await azurite.matches(pattern, 1, _READY_SECONDS)
        parts.append(f"{service}Endpoint={line[1]}/devstoreaccount1")
    return ";".join(parts) + ";"
