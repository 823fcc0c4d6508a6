"""Azure on this machine: Azurite, the broker and the Functions host as three processes."""

import asyncio
import contextlib
import re
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote

from azure.core.exceptions import ResourceExistsError

from busway import PACKAGES, ROOT
from cli.children import Child
from cli.local_faults import PID_FILE
from cli.node_packages import node_modules
from cli.signals import beside, together
from shared.ends.namespace import ADMINISTRATION_SUFFIX

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
    azurite_command = _azurite(storage, use_default_ports=port != 0)
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
            # Import lazily: only configurations with storage queues need this SDK.
            from shared.ends.storage_queue.clients import synchronous_service

            with synchronous_service("storage", {"storage": storage_string}) as service:
                for queue in replaced.queues:
                    with contextlib.suppress(ResourceExistsError):
                        await asyncio.to_thread(service.create_queue, queue)
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


def _azurite(storage: Path | None, *, use_default_ports: bool) -> list[str]:
    keeping = ["--inMemoryPersistence"] if storage is None else ["--location", str(storage)]
    ports = [] if use_default_ports else [f"--{service.lower()}Port=0" for service in _SERVICES]
    return ["node", str(node_modules() / _AZURITE), "--disableTelemetry", "--skipApiVersionCheck", *keeping, *ports]


async def _storage_connection_string(azurite: Child) -> str:
    parts = [_ACCOUNT]
    for service in _SERVICES:
        pattern = rf"Azurite {service} service is successfully listening at (\S+)"
        (line,) = await azurite.matches(pattern, 1, _READY_SECONDS)
        parts.append(f"{service}Endpoint={line[1]}/devstoreaccount1")
    return ";".join(parts) + ";"
