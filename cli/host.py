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
    http_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            show_default="7071, or a free port if it is taken",
            help="Port of the functions with an HTTP trigger; 0 picks a free one.",
        ),
    ] = None,
    lose_every: Annotated[
        int | None,
        typer.Option(
            min=2,
            show_default=False,
            help="Settle every N-th message without passing it to a function, to try the alarm for losses.",
        ),
    ] = None,
) -> None:
    """
    Run the function app in the current folder as Azure's Functions host would.

    App settings come from the environment, then from local.settings.json. BUSWAY_CONFIG names the folder of
    connections and tasks (default: `config`). Once every function is listening, one line is printed: `ready`, then the
    names of the functions, except those with an HTTP trigger: their address is on standard error, `http` and the URL.
    On SIGTERM or Ctrl-C the host stops as Azure's does: batches in progress have 10 s to end
    while new ones arrive; a batch that still runs then is not settled, and the process with the functions is killed.
    The log goes to standard error.
    """
    from cli.host_process import run_host

    run_host(wire=wire, http_port=http_port, lose_every=lose_every)
