"""`busway status`: what every task does now, how far behind it is, and why."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder

_WATCH_SECONDS = 3.0
_CLEAR = "\x1b[H\x1b[J"
_LOG_WIDTH = 80


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
    import asyncio
    import os
    import shutil
    import sys

    import msgspec

    from cli.output import waits_for
    from cli.places import tasks_named
    from cli.signals import run_until_signalled
    from cli.status_text import status_text
    from shared.assembly.status import StatusReader
    from shared.status.model import EXIT_CODES, Health, Status
    from shared.tasks.files import load

    configuration = load(folder)
    names = [file.task for file in tasks_named(tasks or [], configuration)]
    reader = StatusReader(configuration, os.environ)
    health = Health.UNKNOWN

    def show(status: Status) -> None:
        nonlocal health
        health = status.health
        if as_json:
            text = msgspec.json.encode(status)
            print((text if watch else msgspec.json.format(text, indent=2)).decode(), flush=True)
            return
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size((_LOG_WIDTH, 24)).columns if is_terminal else _LOG_WIDTH
        has_color = is_terminal and "NO_COLOR" not in os.environ
        shown = status_text(status, width, everything=everything or bool(names), has_color=has_color)
        typer.echo((_CLEAR if watch and is_terminal else "") + shown, color=has_color)

    async def run() -> None:
        waits_for("the namespaces and the storage")
        try:
            show(await reader.read(names))
            while watch:
                await asyncio.sleep(_WATCH_SECONDS)
                show(await reader.read(names))
        finally:
            await reader.close()

    run_until_signalled(run())
    raise typer.Exit(EXIT_CODES[health])
