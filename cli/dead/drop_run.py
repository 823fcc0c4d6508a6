"""The run of `drop`, and of `busway purge` where messages have to be received."""

import asyncio
import os
from functools import partial
from pathlib import Path

import typer

from cli.dead.export_file import exported_keys
from cli.dead.kinds import Kind, problems
from cli.dead.progress import run_to_end
from cli.dead.summary import announce, print_end, print_rest
from shared.config.files import Configuration, load
from shared.resend.inventory import inventory_of
from shared.resend.options import PATIENCE_SECONDS, Options
from shared.resend.places import Place, Scene
from shared.resend.removal import Removal
from shared.resend.run import entity_run
from shared.resend.selection import Selection


def drop_and_print(
    kind: Kind, text: str, selection: Selection, folder: Path, *, exported: Path | None, wait: float, dry_run: bool
) -> bool:
    """Remove the selected messages; print what happened, and return whether nothing is left to do."""
    with problems():
        configuration = load(folder)
        place = kind.place(text, configuration)
        keys = None if exported is None else exported_keys(exported, place)
        return asyncio.run(remove(place, configuration, selection, keys=keys, wait=wait, dry_run=dry_run))
    return False


async def remove(
    place: Place,
    configuration: Configuration,
    selection: Selection,
    *,
    keys: set[str] | None = None,
    wait: float = PATIENCE_SECONDS,
    dry_run: bool,
) -> bool:
    """Remove the selected messages of *place*, only those with *keys* if given; return whether none is left."""
    found = await inventory_of(place, os.environ, selection, keys=keys)
    if not announce(found, "drop"):
        return not found.unevaluated
    if dry_run:
        return True
    scene = Scene(place, configuration, os.environ)
    make = partial(entity_run, scene, Removal(), found.sessions, Options(patience=wait))
    result = await run_to_end(make, "dropped", len(found.sessions))
    typer.echo(f"{result.completed:>8,} dropped")
    print_rest(result)
    print_end(result.error, is_stopped=result.is_stopped)
    return not result.left and result.error is None and not found.unreachable
