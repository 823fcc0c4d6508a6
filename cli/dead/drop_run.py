"""The run of `drop`, and of `busway purge` where messages have to be received."""

import asyncio
import os
from pathlib import Path

import typer

from cli.dead.dropping import Removal
from cli.dead.exporting import exported_keys
from cli.dead.kinds import Kind, problems
from cli.dead.progress import progress, stopped_by_signals
from cli.dead.wanted import announce, print_left
from shared.config.files import load
from shared.printable import printable
from shared.resend.inventory import inventory_of
from shared.resend.options import PATIENCE_SECONDS
from shared.resend.places import Place
from shared.resend.selection import Selection


def drop_and_print(
    kind: Kind, text: str, selection: Selection, folder: Path, *, exported: Path | None, wait: float, dry_run: bool
) -> bool:
    """Remove the selected messages; print what happened, and return whether nothing is left to do."""
    with problems():
        configuration = load(folder)
        place = kind.place(text, configuration)
        keys = None if exported is None else exported_keys(exported, place)
        return asyncio.run(remove(place, selection, keys=keys, wait=wait, dry_run=dry_run))
    return False


async def remove(
    place: Place,
    selection: Selection,
    *,
    keys: set[str] | None = None,
    wait: float = PATIENCE_SECONDS,
    dry_run: bool,
) -> bool:
    """Remove the selected messages of *place*, only those with *keys* if given; return whether none is left."""
    wanted = await inventory_of(place, os.environ, selection, lambda _: "", keys=keys)
    if not announce(wanted, "drop"):
        return not wanted.unevaluated
    if dry_run:
        return True
    with progress("dropped", len(wanted.sessions)) as advance:
        run = Removal(place, wanted.sessions, os.environ, wait, advance)
        with stopped_by_signals(run.stop):
            await run.run()
    typer.echo(f"{run.removed:>8,} dropped")
    if run.gone:
        typer.echo(f"{run.gone:>8,} gone: another receiver has taken them meanwhile")
    print_left(run.left)
    if run.error is not None:
        typer.echo(f"ended early: {printable(str(run.error))}", err=True)
    if run.is_stopped:
        typer.echo("stopped: locks are released; run the command again to continue", err=True)
    return not run.left and run.error is None and not wanted.unreachable
