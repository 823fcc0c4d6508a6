"""`busway status`."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder


def status(
    tasks: Annotated[list[str] | None, typer.Argument(metavar="[TASK]...", help="Only these tasks.")] = None,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every few seconds until you press Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON, as docs/status.schema.json describes it; with --watch a line each time."
        ),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show every idle task, however many there are.")] = False,
    folder: Folder = Path("config"),
) -> None:
    """
    Show what every task does now, how far behind it is, and why.

    The command looks into the sources and the dead-letter queues, and reads what the instances of the app report of
    themselves in the journal's storage. It receives nothing and changes nothing. What is unknown is shown as `?`, with
    the reason below the table. App settings are those of the environment: connection strings, or NAME__… and your own
    Azure identity, which needs the right to listen; with the right to manage, backlogs of more than 1,000 messages
    are counted exactly. For a stack of `busway start`: `. build/start/settings`.

    States: `running`; `idle`: nothing waits; `paused` by an operator; `held`: batches wait for a target or the journal;
    `stopped`: messages wait and no batch succeeds; `unknown`.

    Exit code 0: no task needs attention. 1: a task is held or stopped, misses heartbeats, or has lost messages. 2: no
    task is known to need attention, but not everything is known; or the configuration has problems.
    """
    from cli.status.run import show_status

    raise typer.Exit(show_status(folder, tasks or [], watch=watch, as_json=as_json, everything=everything))
