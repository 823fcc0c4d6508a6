"""The function app and everything it needs, on this machine: what `busway start` runs."""

import asyncio
import contextlib
import os
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

from busway import ROOT
from cli.commands.broker import DEFAULT_ADMIN_PORT
from cli.entities import beside, entities_of, host_file_above, settings_of
from cli.files import free_folder
from cli.local_faults import STACK_SETTING
from cli.signals import run_until_signalled
from cli.stack import Replacements, Stack, running_stack
from cli.topology.deployment import storage_settings
from shared.ends.kind import Holds
from shared.ends.namespace import ADMINISTRATION_SUFFIX
from shared.errors import ConfigError, Problem
from shared.private_file import write_private
from shared.review import Severity, review
from shared.tasks.files import Configuration, load

LOGS = Path("build/start")
STORAGE = Path(".azurite")
_AZURITE_PORTS = (10000, 10001, 10002)
_SITES_OF_THE_REPOSITORY = [ROOT / "infra/emulators/west.json", ROOT / "infra/emulators/east.json"]


def run_local_app(folder: Path, port: int) -> None:
    """Run everything until a signal; raises ConfigError, ChildFailed."""
    configuration = load(folder)
    namespaces: dict[str, Path] = {}
    problems = []
    for config in beside(folder) or _SITES_OF_THE_REPOSITORY:
        settings = settings_of(config, configuration.connections)
        if not settings:
            problem = f"its name is not that of a connection of the same kind in {folder}"
            problems.append(Problem(str(config), problem, f"expected one of {', '.join(configuration.connections)}"))
        namespaces |= dict.fromkeys(sorted(settings), config)
    if problems:
        raise ConfigError(problems)
    # The host would wait a minute for a missing queue.
    files = [f"{setting}={file}" for setting, file in namespaces.items()]
    findings = review(configuration, entities_of(files, configuration.connections), host_file_above(folder))
    errors = [finding.problem for finding in findings if finding.check.severity is Severity.ERROR]
    if errors:
        raise ConfigError(errors)
    _check_ports(port, len(set(namespaces.values())))
    with free_folder(LOGS) as logs:
        run_until_signalled(_start(folder.resolve(), namespaces, logs, port, replaced_settings(configuration)))


def replaced_settings(configuration: Configuration) -> Replacements:
    """Return the app settings that the stack sets, of those that the environment does not have."""
    environment = os.environ
    queues, records = configuration.entities(Holds.TEXTS), configuration.entities(Holds.RECORDS)
    ends = {connection.key: connection.end for connection in configuration.connections.values()}
    stores = {each for each in storage_settings(configuration) | set(queues) if each not in environment}
    return Replacements(
        stores=stores,
        queues={name for key, names in queues.items() if key in stores for name in names},
        urls={key for key, end in ends.items() if end.holds is Holds.MESSAGES and not end.is_namespace},
        topics={key: names for key, names in records.items() if key not in environment},
        webhooks={key: names for key, names in configuration.webhooks().items() if key not in environment},
    )


def _check_ports(first: int, count: int) -> None:
    """Raise ConfigError if a port of the namespaces, of their administration or of Azurite is in use."""
    if first == 0:
        return
    wanted = {
        **dict.fromkeys(range(first, first + count), "a namespace"),
        **dict.fromkeys(range(DEFAULT_ADMIN_PORT, DEFAULT_ADMIN_PORT + count), "the administration of a namespace"),
        **dict.fromkeys(_AZURITE_PORTS, "Azurite"),
    }
    hint = "stop the other program, or let every port be a free one: --port 0"
    problems = []
    for port, what in wanted.items():
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                problems.append(Problem(f"port {port}", f"is in use, expected a free port for {what}", hint))
    if problems:
        raise ConfigError(problems)


async def _start(
    folder: Path, namespaces: Mapping[str, Path], logs: Path, port: int, replacements: Replacements
) -> None:
    print("Starting Azurite, the broker and the Functions host …", flush=True)
    here = Path.cwd()
    # A project has no app of its own: it is deployed with the one of this Busway.
    app = here if (here / "function_app.py").is_file() else ROOT
    # A second stack beside this one has a folder of its own, and so it has for the data of Azurite.
    storage = here / f"{STORAGE}{logs.name.removeprefix(LOGS.name)}"
    async with running_stack(
        namespaces, logs, replacements, app=app, folder=folder, port=port, storage=storage
    ) as stack:
        settings = logs / "settings"
        names = {"BUSWAY_CONFIG": folder, STACK_SETTING: here / logs}
        exports = [*_exports(stack), *(f"export {name}={shlex.quote(str(path))}" for name, path in names.items()), ""]
        write_private(settings, "\n".join(exports))
        print(introduction(stack, here / logs), flush=True)
        print(f"To set all of these in another terminal: . {shlex.quote(str(settings))}")
        print("Press Ctrl-C to stop everything.", flush=True)
        await stack.while_it_runs(asyncio.Event().wait())


def introduction(stack: Stack, logs: Path) -> str:
    """Return the functions, settings and log file of a running stack, as text."""
    lines = ["Running: " + stack.tasks, "", *_exports(stack), ""]
    if stack.status is not None:
        lines.append(f"Dashboard: {stack.status}")
    lines.append(f"The log of the function app: tail -f {shlex.quote(str(logs / 'host.log'))}")
    return "\n".join(lines)


def _exports(stack: Stack) -> list[str]:
    strings = {**stack.connection_strings, "AzureWebJobsStorage": stack.storage}
    strings |= {f"{setting}{ADMINISTRATION_SUFFIX}": address for setting, address in stack.administration.items()}
    return [f'export {setting}="{string}"' for setting, string in strings.items()]
