"""`busway fault`: failures of the local stack, to see what a task does with them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder


class Kind(StrEnum):
    """What fails."""

    AWAY = "away"
    FULL = "full"
    SLOW = "slow"
    LOCK_LOST = "lock-lost"
    KILLED = "killed"
    NONE = "none"


def fault(
    kind: Annotated[
        Kind | None, typer.Argument(help="What fails; `none` ends all faults. [default: list them]", show_default=False)
    ] = None,
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="CONNECTION[/ENTITY]", help="A namespace, or a queue, topic, subscription or hub of it."
        ),
    ] = None,
    *,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.1, metavar="SECONDS", help="End it after this time; Ctrl-C does too.")
    ] = None,
    delay: Annotated[
        float, typer.Option(min=0.01, max=3600, metavar="SECONDS", help="With slow: how late each answer is.")
    ] = 2.0,
    times: Annotated[
        int | None,
        typer.Option(min=1, show_default="no limit; with lock-lost once", help="Only so many operations fail."),
    ] = None,
    config: Folder = Path("config"),
) -> None:
    """
    Let something fail in the stack of `busway start`, and watch `busway status`.

    - `away`: every connection breaks; `full`: nothing more is accepted; `slow`: answers come late;
    - `lock-lost`: the lock on messages ends before they are settled, once;
    - `killed`: the function app is killed, and starts again.

    It needs the settings of the stack: `. build/start/settings`. A fault stays until `busway fault none`, or until the
    broker ends. Example:

        busway fault full east/payments --for 60
    """
    from cli.local_faults import add, clear, kill_host, lines
    from shared.errors import ConfigError, Problem
    from shared.tasks.files import load_connections

    if kind is Kind.KILLED:
        typer.echo(f"killed the function app, process {kill_host()}; busway start starts it again")
        return
    connections = load_connections(config)
    if kind is None or kind is Kind.NONE:
        if kind is Kind.NONE:
            clear(place, connections)
        typer.echo("\n".join(lines(place, connections)) or "no faults")
        return
    if place is None:
        raise ConfigError([Problem(f"busway fault {kind}", "names nothing that fails", "add CONNECTION[/ENTITY]")])
    failures: dict[Kind, dict[str, object]] = {
        Kind.AWAY: {"effect": "drop-connection"},
        Kind.FULL: {"effect": "fill"},
        Kind.SLOW: {"effect": "delay", "delay": delay},
        Kind.LOCK_LOST: {"effect": "expire-locks", "operations": ["settle"], "times": 1},
    }
    description = failures[kind]
    if times is not None:
        description["times"] = times
    add(place, description, connections)
    typer.echo(f"{place}: {kind}" + (f" for {seconds:g} s" if seconds else ", until busway fault none"))
    if seconds is not None:
        import time

        try:
            time.sleep(seconds)
        finally:
            clear(place, connections)
            typer.echo(f"{place}: works again")
