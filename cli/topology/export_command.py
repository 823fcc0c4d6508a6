"""`busway export`: a live namespace as a Config.json."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder
from cli.topology.options import AdminAddresses, Authority


def export(
    connection: Annotated[str, typer.Argument(help="The connection of the namespace.")],
    *,
    config: Folder = Path("config"),
    output: Annotated[Path | None, typer.Option(help="Write this file. [default: standard output]")] = None,
    admin: AdminAddresses = None,
    admin_ca: Authority = None,
) -> None:
    """
    Print what a Service Bus namespace has as Config.json, the format of Microsoft's emulators.

    The local broker runs such a file, and `busway check` compares the tasks with it: put it into CONFIG/entities under
    the connection's name. What the format cannot hold is listed on standard error; keys and messages are not exported.
    Of an Event Hubs namespace, the hubs that the tasks name are exported.

    Exit code 0: exported. 1: anything else.

    Example:
    busway export west --output config/entities/west.json

    """
    from cli.topology.export_run import run_export

    run_export(connection, config, output, admin or [], admin_ca)
