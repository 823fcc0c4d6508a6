"""`busway start`: everything that a function app needs, on this machine."""

import asyncio
import shlex
from pathlib import Path
from typing import Annotated

import typer

from cli.children import ChildFailed
from cli.output import fail
from cli.stack import ROOT, Stack, run_until_signalled, running_stack
from shared.errors import ConfigError

LOGS = Path("build/start")
STORAGE = Path(".azurite")


def start(
    config: Annotated[
        list[Path] | None,
        typer.Option(help="Config.json of a namespace, for the app setting of its name. [default: west and east]"),
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the first namespace; 0 takes free ports everywhere.")] = 5672,
) -> None:
    """
    Run Azurite, the broker and the Functions host together until Ctrl-C ends them.

    The namespaces are those of infra/emulators: west.json on port 5672 becomes the app setting WEST, east.json on 5673
    becomes EAST. The function app is the one in the current folder. Logs go to build/start, and the storage of Azurite
    is kept in .azurite.
    """
    configs = config or [ROOT / "infra/emulators/west.json", ROOT / "infra/emulators/east.json"]
    try:
        run_until_signalled(_start(configs, Path.cwd(), port))
    except ConfigError as error:
        fail(error.problems)
    except ChildFailed as error:
        fail([error])


async def _start(configs: list[Path], app: Path, port: int) -> None:
    print("Starting Azurite, broker and host …", flush=True)
    async with running_stack(configs, LOGS, app=app, port=port, storage=app / STORAGE) as stack:
        print(introduction(stack, app / LOGS), "Ctrl-C ends it all.", sep="\n", flush=True)
        await stack.while_it_runs(asyncio.Event().wait())


def introduction(stack: Stack, logs: Path) -> str:
    """Return what a person needs to look around in a running stack."""
    lines = ["Running: " + ", ".join(stack.functions), ""]
    lines += [f'export {name.upper()}="{string}"' for name, string in stack.connection_strings.items()]
    lines += [
        f'export AzureWebJobsStorage="{stack.storage}"',
        "",
        f"What happens to messages: tail -f {shlex.quote(str(logs / 'host.log'))}",
    ]
    return "\n".join(lines)
