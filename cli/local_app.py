"""The function app and everything it needs, on this machine: what `busway start` runs."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.children import ChildFailed
from cli.entities import beside, settings_of
from cli.output import fail
from cli.stack import ROOT, Stack, run_until_signalled, running_stack
from shared.config.files import load
from shared.errors import ConfigError, Problem
from shared.private_file import write_private

LOGS = Path("build/start")
SETTINGS = LOGS / "settings"
STORAGE = Path(".azurite")


def run_local_app(folder: Path, configs: Sequence[Path], port: int) -> None:
    """Run everything until a signal; without *configs*, those of the folder or else of the repository."""
    try:
        namespaces = _namespaces(folder, configs or beside(folder) or _sites_of_the_repository())
        run_until_signalled(_start(folder.resolve(), namespaces, Path.cwd(), port))
    except ConfigError as error:
        fail(error.problems)
    except ChildFailed as error:
        fail([error])


def _sites_of_the_repository() -> list[Path]:
    return [ROOT / "infra/emulators/west.json", ROOT / "infra/emulators/east.json"]


def _namespaces(folder: Path, configs: Sequence[Path]) -> dict[str, Path]:
    """Return *configs* by the app settings of the connections with their names; raises ConfigError."""
    connections = load(folder).connections
    namespaces: dict[str, Path] = {}
    problems = []
    for config in configs:
        settings = settings_of(config, connections)
        if not settings:
            problem = f"its name is not that of a connection of the same kind in {folder}"
            problems.append(Problem(str(config), problem, f"expected one of {', '.join(connections)}"))
        namespaces |= dict.fromkeys(sorted(settings), config)
    if problems:
        raise ConfigError(problems)
    return namespaces


async def _start(folder: Path, namespaces: Mapping[str, Path], app: Path, port: int) -> None:
    print("Starting Azurite, the broker and the Functions host …", flush=True)
    async with running_stack(namespaces, LOGS, app=app, folder=folder, port=port, storage=app / STORAGE) as stack:
        settings = app / SETTINGS
        exports = [*_exports(stack), f"export BUSWAY_CONFIG={shlex.quote(str(folder))}", ""]
        write_private(settings, "\n".join(exports))
        print(introduction(stack, app / LOGS), flush=True)
        print(f"To set all of these in another terminal: . {shlex.quote(str(SETTINGS))}")
        print("Press Ctrl-C to stop everything.", flush=True)
        await stack.while_it_runs(asyncio.Event().wait())


def introduction(stack: Stack, logs: Path) -> str:
    """Return the functions, settings and log file of a running stack, as text."""
    lines = ["Running: " + stack.tasks, "", *_exports(stack), ""]
    lines.append(f"The log of the function app: tail -f {shlex.quote(str(logs / 'host.log'))}")
    return "\n".join(lines)


def _exports(stack: Stack) -> list[str]:
    strings = {**stack.connection_strings, "AzureWebJobsStorage": stack.storage}
    return [f'export {setting}="{string}"' for setting, string in strings.items()]
