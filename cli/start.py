"""`busway start`: everything that a function app needs, on this machine."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.children import ChildFailed
from cli.entities import beside, settings_of
from cli.output import fail
from cli.stack import ROOT, Stack, run_until_signalled, running_stack
from shared.config.files import load
from shared.errors import ConfigError, Problem

LOGS = Path("build/start")
SETTINGS = LOGS / "settings"
STORAGE = Path(".azurite")


def start(
    folder: Annotated[
        Path,
        typer.Argument(
            envvar="BUSWAY_CONFIG", help="The folder with connections.yaml, tasks/ and, for the broker, entities/."
        ),
    ] = Path("config"),
    config: Annotated[
        list[Path] | None,
        typer.Option(
            help="Config.json of a namespace, for the connection of the file's name; repeatedly. "
            "[default: those in FOLDER/entities, else infra/emulators/west.json and east.json]"
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the first namespace; 0 takes free ports everywhere.")] = 5672,
) -> None:
    """
    Run Azurite, the broker and the Functions host together until Ctrl-C ends them.

    FOLDER/entities has a Config.json, in the format of Microsoft's emulators, for each connection, named after it:
    west.json is the namespace of the connection `west`, and the host finds it in the app setting that connections.yaml
    gives for it. They listen on port 5672, 5673 and so on, in the order of their names. The function app is the one in
    the current folder. Logs go to build/start, with the app settings to be sourced in another terminal
    (`. build/start/settings`); the storage of Azurite is kept in .azurite. Example:

    busway start config/examples/all-active
    """
    try:
        namespaces = _namespaces(folder, config or beside(folder) or _sites_of_the_repository())
        run_until_signalled(_start(folder.resolve(), namespaces, Path.cwd(), port))
    except ConfigError as error:
        fail(error.problems)
    except ChildFailed as error:
        fail([error])


def _sites_of_the_repository() -> list[Path]:
    return [ROOT / "infra/emulators/west.json", ROOT / "infra/emulators/east.json"]


def _namespaces(folder: Path, configs: Sequence[Path]) -> dict[str, Path]:
    """Return *configs* by the app settings of the connections that they are named after; raises ConfigError."""
    connections = load(folder).connections
    namespaces: dict[str, Path] = {}
    problems = []
    for config in configs:
        settings = settings_of(config, connections)
        if not settings:
            hint = f"it has {', '.join(connections)}"
            told = f"is named after no connection of its kind in {folder}"
            problems.append(Problem(str(config), told, hint))
        namespaces |= dict.fromkeys(sorted(settings), config)
    if problems:
        raise ConfigError(problems)
    return namespaces


async def _start(folder: Path, namespaces: Mapping[str, Path], app: Path, port: int) -> None:
    print("Starting Azurite, broker and host …", flush=True)
    async with running_stack(namespaces, LOGS, app=app, folder=folder, port=port, storage=app / STORAGE) as stack:
        settings = app / SETTINGS
        settings.write_text("\n".join([*_exports(stack), f"export BUSWAY_CONFIG={shlex.quote(str(folder))}", ""]))
        print(introduction(stack, app / LOGS), flush=True)
        print(f"All of these settings, for another terminal: . {shlex.quote(str(SETTINGS))}")
        print("Ctrl-C ends it all.", flush=True)
        await stack.while_it_runs(asyncio.Event().wait())


def introduction(stack: Stack, logs: Path) -> str:
    """Return what a person needs to look around in a running stack."""
    lines = ["Running: " + ", ".join(stack.functions), "", *_exports(stack), ""]
    lines.append(f"What happens to messages: tail -f {shlex.quote(str(logs / 'host.log'))}")
    return "\n".join(lines)


def _exports(stack: Stack) -> list[str]:
    strings = {**stack.connection_strings, "AzureWebJobsStorage": stack.storage}
    return [f'export {setting}="{string}"' for setting, string in strings.items()]
