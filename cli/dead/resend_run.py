"""The run of `resend`."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import batched
from pathlib import Path
from typing import NamedTuple

import typer

from cli.dead.duplicates import window_by_administration
from cli.dead.edits import edits_of
from cli.dead.export_file import exported_letters
from cli.dead.kinds import Kind, problems
from cli.dead.ledger_file import LedgerFile, ledger_of
from cli.dead.listing import messages
from cli.dead.progress import run_to_end
from cli.dead.summary import announce, print_end, print_rest
from cli.topology.sites import Access
from shared.config.files import load
from shared.config.outputs import closing_outputs
from shared.config.status_assembly import open_status_container
from shared.printable import printable
from shared.resend.delivery import TargetDelivery
from shared.resend.inventory import inventory_of
from shared.resend.ledger import COMPLETED, SENDING, SENT, Ledger, LedgerStore
from shared.resend.ledger_blob import LedgerBlob
from shared.resend.letters import Letter
from shared.resend.options import Options
from shared.resend.places import Scene
from shared.resend.routing import guarded, routing_of
from shared.resend.run import AT_ONCE, Result, Run, entity_run
from shared.resend.selection import Selection
from shared.resend.source import CopySource

APP = "app"
"""The value of `--ledger` that means the blob which the dashboard uses."""


class ResendRequest(NamedTuple):
    """What `resend` was asked to do."""

    to: str | None
    set_: list[str]
    remove: list[str]
    editors: str | None
    new_ids: bool | None
    """None: keep them, and leave messages that would be dropped as duplicates."""
    admin: list[str]
    ledger: str | None
    """A file, or APP; None for the file of the entity."""
    file: Path | None
    options: Options


def resend_and_print(
    kind: Kind, text: str, selection: Selection, folder: Path, request: ResendRequest, *, dry_run: bool
) -> bool:
    """Send the selected messages again; print what happened, and return whether nothing is left to do."""
    with problems():
        configuration = load(folder)
        scene = Scene(kind.place(text, configuration), configuration, os.environ)
        return asyncio.run(_resend(scene, selection, request, dry_run=dry_run))
    return False


async def _resend(scene: Scene, selection: Selection, request: ResendRequest, *, dry_run: bool) -> bool:
    place, configuration, settings = scene
    routing = routing_of(place, configuration, request.to, "use --to")
    new_ids = bool(request.new_ids)
    if request.new_ids is None:
        access = Access.of(request.admin, None, configuration.connections)
        routing = guarded(routing, window_by_administration(configuration, access), datetime.now(UTC))
    edits = edits_of(request.set_, request.remove, request.editors, configuration, settings, new_ids=new_ids)
    async with contextlib.AsyncExitStack() as opened:
        ledger = _ledger(scene, request.ledger, opened)
        if not dry_run:
            await opened.enter_async_context(ledger)
        is_reachable = True
        if request.file is None:
            found = await inventory_of(place, settings, selection, routing)
            wanted, is_reachable = found.sessions, not found.unreachable
            if not announce(found, "resend"):
                return is_reachable and not found.unevaluated
            for destination, count in found.destinations.items():
                typer.echo(f"  {count:,} to {printable(destination)}")
            make = partial(entity_run, scene)
        else:
            # Each pass over the file counts its selection again.
            letters = partial(exported_letters, request.file, place)
            wanted = {each.key or "": each.session_id for each in letters(replace(selection))}
            typer.echo(f"{messages(len(wanted))} of {place} in {request.file}")
            make = partial(Run, lambda _: CopySource(_pages(letters(replace(selection)))))
        if dry_run or not wanted:
            return bool(wanted)
        outputs = await opened.enter_async_context(closing_outputs(configuration, settings))
        delivery = TargetDelivery(scene, ledger, edits, routing, outputs)
        result = await run_to_end(partial(make, delivery, wanted, request.options), "resent", len(wanted))
        _print_result(result, ledger, stays=request.file is not None)
        return result.is_complete and is_reachable


def _ledger(scene: Scene, choice: str | None, opened: contextlib.AsyncExitStack) -> Ledger:
    """Return the ledger of `--ledger`; its container is closed with *opened*."""
    store: LedgerStore = LedgerFile(ledger_of(scene.place) if choice is None else Path(choice))
    if choice == APP:
        container = open_status_container(scene.configuration, scene.settings)
        opened.push_async_callback(container.close)
        store = LedgerBlob(container, scene.place)
    return Ledger(store, str(scene.place).lower())


async def _pages(letters: Iterator[Letter]) -> AsyncGenerator[list[tuple[str, Letter]]]:
    for some in batched(letters, AT_ONCE, strict=False):
        yield [(each.key or "", each) for each in some]


def _print_result(result: Result, ledger: Ledger, *, stays: bool) -> None:
    typer.echo(f"{result.sent:>8,} sent")
    if result.sent_before:
        what = "not sent" if stays else "completed"
        typer.echo(f"{result.sent_before:>8,} {what}: an earlier run had sent them")
    print_rest(result)
    counts = f"{ledger.count(COMPLETED):,} completed, {ledger.count(SENDING, SENT):,} open"
    typer.echo(f"ledger: {ledger.where} ({counts})")
    print_end(result.error, is_stopped=result.is_stopped)
