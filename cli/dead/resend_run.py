"""The run of `resend`."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import typer

from cli.dead.duplicates import window_by_administration
from cli.dead.edits import edits_of
from cli.dead.file_resending import FileResend, letters_in
from cli.dead.kinds import Kind, problems
from cli.dead.ledger_file import LedgerFile, ledger_of
from cli.dead.listing import messages
from cli.dead.progress import progress, stopped_by_signals
from cli.dead.wanted import announce, print_left
from cli.topology.sites import Access
from shared.config.files import Configuration, load
from shared.config.outputs import open_outputs
from shared.config.status_assembly import open_status_container
from shared.printable import printable
from shared.resend.delivery import Routing, TargetDelivery
from shared.resend.edits import Edits
from shared.resend.inventory import inventory_of
from shared.resend.ledger import COMPLETED, SENDING, SENT, Ledger
from shared.resend.ledger_blob import LedgerBlob
from shared.resend.letters import Letter
from shared.resend.options import Options
from shared.resend.places import Place, Scene
from shared.resend.routing import guarded, routing_of
from shared.resend.run import Result, entity_run
from shared.resend.selection import Selection

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


class _Plan(NamedTuple):
    """How messages of an entity are sent again."""

    scene: Scene
    request: ResendRequest
    selection: Selection
    routing: Routing
    edits: Edits
    ledger: Ledger

    @contextlib.asynccontextmanager
    async def delivery(self) -> AsyncIterator[TargetDelivery]:
        """Open the connections to send through."""
        outputs = open_outputs(self.scene.configuration, self.scene.settings)
        try:
            yield TargetDelivery(self.scene, self.ledger, self.edits, self.routing, outputs)
        finally:
            for output in outputs.values():
                await output.close()


def resend_and_print(
    kind: Kind, text: str, selection: Selection, folder: Path, request: ResendRequest, *, dry_run: bool
) -> bool:
    """Send the selected messages again; print what happened, and return whether nothing is left to do."""
    with problems():
        configuration = load(folder)
        place = kind.place(text, configuration)
        return asyncio.run(_resend(place, selection, configuration, request, dry_run=dry_run))
    return False


async def _resend(
    place: Place, selection: Selection, configuration: Configuration, request: ResendRequest, *, dry_run: bool
) -> bool:
    scene = Scene(place, configuration, os.environ)
    routing = routing_of(place, configuration, request.to, "use --to")
    if request.new_ids is None:
        access = Access.of(request.admin, None, configuration.connections)
        routing = guarded(routing, window_by_administration(configuration, access), datetime.now(UTC))
    edits = edits_of(
        request.set_, request.remove, request.editors, configuration, os.environ, new_ids=bool(request.new_ids)
    )
    async with _ledger(scene, request) as ledger:
        plan = _Plan(scene, request, selection, routing, edits, ledger)
        run = _resend_entity if request.file is None else _resend_file
        return await run(plan, dry_run=dry_run)


@contextlib.asynccontextmanager
async def _ledger(scene: Scene, request: ResendRequest) -> AsyncIterator[Ledger]:
    """Give the ledger, not opened yet."""
    name = str(scene.place).lower()
    if request.ledger != APP:
        yield Ledger(LedgerFile(ledger_of(scene.place) if request.ledger is None else Path(request.ledger)), name)
        return
    container = open_status_container(scene.configuration, scene.settings)
    try:
        yield Ledger(LedgerBlob(container, scene.place), name)
    finally:
        await container.close()


async def _resend_entity(plan: _Plan, *, dry_run: bool) -> bool:
    """Send messages of the entity again."""
    place, settings = plan.scene.place, plan.scene.settings
    async with plan.ledger if not dry_run else contextlib.nullcontext():
        wanted = await inventory_of(place, settings, plan.selection, plan.routing)
        if not announce(wanted, "resend"):
            return not wanted.unreachable and not wanted.unevaluated
        for destination, count in wanted.destinations.items():
            typer.echo(f"  {count:,} to {printable(destination)}")
        if dry_run:
            return True
        async with plan.delivery() as delivery:
            with progress("resent", len(wanted.sessions)) as advance:
                run = entity_run(plan.scene, wanted.sessions, delivery, plan.request.options, advance)
                with stopped_by_signals(run.stop):
                    result = await run.run()
        _print_result(result, plan.ledger)
        return result.is_complete and not wanted.unreachable


async def _resend_file(plan: _Plan, *, dry_run: bool) -> bool:
    """Send the messages of a file again."""
    file = plan.request.file or Path()

    def letters() -> Iterator[Letter]:
        # Each pass over the file counts its selection again.
        return letters_in(file, plan.scene, replace(plan.selection))

    total = sum(1 for _ in letters())
    typer.echo(f"{messages(total)} of {plan.scene.place} in {file}")
    if dry_run or not total:
        return bool(total)
    async with plan.ledger, plan.delivery() as delivery:
        with progress("resent", total) as advance:
            run = FileResend(plan.scene, delivery, plan.request.options.unclear, advance)
            with stopped_by_signals(run.stop):
                result = await run.run(letters)
        _print_result(result, plan.ledger)
        return result.is_complete


def _print_result(result: Result, ledger: Ledger) -> None:
    typer.echo(f"{result.sent:>8,} sent")
    if result.sent_before:
        typer.echo(f"{result.sent_before:>8,} completed: an earlier run had sent them")
    if result.sent_before:
        typer.echo(f"{result.sent_before:>8,} not sent: an earlier run had sent them")
    if result.gone:
        typer.echo(f"{result.gone:>8,} gone: another receiver has taken them meanwhile")
    print_left(result.left)
    counts = f"{ledger.count(COMPLETED):,} completed, {ledger.count(SENDING, SENT):,} open"
    typer.echo(f"ledger: {ledger.where} ({counts})")
    if result.error is not None:
        typer.echo(f"ended early: {printable(str(result.error))}", err=True)
    if result.is_stopped:
        typer.echo("stopped: locks are released; run the command again to continue", err=True)
