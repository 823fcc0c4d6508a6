"""`busway host`: the function app of the current folder."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from shared.errors import ConfigError, Problem


def host(
    *,
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
    ending: Annotated[
        Literal["stop", "drain", "restart"],
        typer.Option(
            "--ending",
            help="How a signal ends the host: as SIGTERM does, as a scale-in does, or at once as a publish does.",
        ),
    ] = "stop",
    drain_seconds: Annotated[
        float, typer.Option(min=0, help="How long invocations may run on when the host ends with a drain.")
    ] = 3600.0,
    restart_in_drain: Annotated[
        float | None,
        typer.Option(
            min=0,
            show_default=False,
            help="Seconds into a drain after which the host listens again, until it is killed at its end.",
        ),
    ] = None,
    steal_after: Annotated[
        float | None,
        typer.Option(
            min=0,
            show_default=False,
            help="Seconds of an invocation after which its partition of a hub gets a second owner, once.",
        ),
    ] = None,
    partition_wait: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds that a restarted host waits for partitions with a checkpoint; on Azure 120 to 150.",
        ),
    ] = 0.0,
) -> None:
    """
    Run the function app in the current folder as Azure's Functions host would.

    App settings come from the environment, then from local.settings.json. BUSWAY_CONFIG names the folder of
    connections and tasks (default: `config`). Once every function is listening, one line is printed: `ready`, then the
    names of the functions, except those with an HTTP trigger: their address is on standard error, `http` and the URL.
    On SIGTERM or Ctrl-C the host stops as Azure's does: batches in progress have 10 s to end
    while new ones arrive; a batch that still runs then is not settled, and the process with the functions gets SIGTERM
    and 2 s later SIGKILL. With --ending drain no new ones arrive; with --ending restart nothing has time to end.
    The log goes to standard error.
    """
    import asyncio
    import logging
    import sys

    from host.host import Host, run
    from host.platform import Ending, Platform

    platform = Platform(
        ending=Ending(ending),
        drain_seconds=drain_seconds,
        restart_in_drain=restart_in_drain,
        steal_after=steal_after,
        partition_wait=partition_wait,
        lose_every=lose_every,
    )
    folder = Path.cwd()
    if not (folder / "function_app.py").exists():
        raise ConfigError(
            [Problem(str(folder), "no function_app.py here; run this command in the folder of a function app")]
        )
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # At INFO the SDK logs every link and many frames.
    logging.getLogger("azure").setLevel(logging.WARNING)

    def on_ready(running: Host) -> None:
        if running.http_port is not None:
            # Before the line that a parent process waits for.
            print(f"http http://127.0.0.1:{running.http_port}", file=sys.stderr, flush=True)
        # Of the functions that requests call, those of tasks: webhooks.
        names = (
            function.name
            for function in running.functions
            if function.trigger["type"] != "httpTrigger" or not function.name.startswith("busway-")
        )
        print("ready", *names, flush=True)

    asyncio.run(run(folder, wire=wire, http_port=http_port, platform=platform, on_ready=on_ready))
