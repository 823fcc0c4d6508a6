"""`busway host`: the function app of the current folder."""

from typing import Annotated

import typer


def host(
    wire: Annotated[
        bool,
        typer.Option(
            "--wire", help="Deliver messages exactly as received, without the changes that Azure's host makes."
        ),
    ] = False,
) -> None:
    """
    Run the function app in the current folder as Azure's Functions host would.

    App settings come from the environment, then from local.settings.json. BUSWAY_CONFIG names the folder of
    connections and tasks (default: `config`). Once every function is listening, one line is printed: `ready`, then the
    names of the functions. On SIGTERM or Ctrl-C the host stops as Azure's does: batches in progress have 10 s to end
    while new ones arrive; a batch that still runs then is not settled, and the process with the functions is killed.
    The log goes to standard error.
    """
    from cli.host_process import run_host

    run_host(wire=wire)
