"""`busway host`: the function app of the current folder."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.output import fail, ready
from shared.errors import ConfigError


def host(
    wire: Annotated[
        bool,
        typer.Option("--wire", help="Hand functions the bytes of the wire, without what Azure's host does to them."),
    ] = False,
) -> None:
    """
    Run the function app of the current folder, as Azure's Functions host would.

    App settings come from the environment, then from local.settings.json. BUSWAY_CONFIG names the folder of
    connections and tasks (`config` unless set). Once every function listens, one line tells so: `ready`, then their
    names. SIGTERM and Ctrl-C finish and settle the batches in hand, then end it. What happens to messages is logged to
    standard error.
    """
    # The worker library takes a second to import, which `busway --help` need not wait for.
    from local.host import Host, run  # noqa: PLC0415

    folder = Path.cwd()
    if not (folder / "function_app.py").exists():
        fail([f"{folder}: holds no function_app.py; go to the folder of a function app"])
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # The SDK tells of every link and every frame it thinks worth knowing.
    logging.getLogger("azure").setLevel(logging.WARNING)

    def tell(running: Host) -> None:
        ready(*(function.name for function in running.functions))

    try:
        asyncio.run(run(folder, wire=wire, on_ready=tell))
    except ConfigError as error:
        fail(error.problems)
