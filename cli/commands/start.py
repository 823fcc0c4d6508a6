"""`busway start`: the function app and everything it needs, on this machine."""

from pathlib import Path
from typing import Annotated

import typer


def start(
    folder: Annotated[
        Path,
        typer.Argument(
            envvar="BUSWAY_CONFIG", help="The folder with connections.yaml, tasks/ and, for the broker, entities/."
        ),
    ] = Path("config"),
    port: Annotated[int, typer.Option(help="Port of the first namespace; 0 picks free ports everywhere.")] = 5672,
) -> None:
    """
    Run Azurite, the broker and the Functions host until you press Ctrl-C.

    FOLDER/entities holds one Config.json for each connection, in the format of Microsoft's emulators and named after
    the connection: west.json is the namespace of the connection `west`. Without any, those of Busway's own tasks run.
    The host finds that namespace in the app setting that connections.yaml gives for `west`. The namespaces listen on
    ports 5672, 5673 and so on, in the order of their names.

    The function app is the one in the current folder, or else that of Busway itself. Logs go to build/start, and so do
    the app settings for another terminal: `. build/start/settings`. Azurite stores its data in .azurite. A second one
    beside it uses build/start-2 and .azurite-2, with --port 0. Nothing starts if `busway check` finds an error.
    For example:

    busway start config/examples/all-active
    """
    from cli.local_app import run_local_app

    run_local_app(folder, port)
