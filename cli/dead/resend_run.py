"""The run of `resend`."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import typer

from cli.dead.delivery import Delivery, Routing
from cli.dead.duplicates import guarded, window_by_administration
from cli.dead.edits import edits_of
from cli.dead.file_resending import FileResend, letters_in
from cli.dead.kinds import Kind, problems
from cli.dead.ledger import COMPLETED, SENDING, SENT, Ledger, ledger_of
from cli.dead.letters import Letter
from cli.dead.listing import messages
from cli.dead.places import Destination, Place, Scene, destination_named, original
from cli.dead.progress import progress, stopped_by_signals
from cli.dead.resending import Options, Resend, Result
from cli.dead.selecting import Selection
from cli.dead.wanted import announce, print_left, wanted_of
from cli.topology.sites import Access
from shared.config.files import Configuration, load
from shared.config.outputs import open_outputs
from shared.printable import printable
from shared.protocols import Output


class ResendRequest(NamedTuple):
    """What `resend` was asked to do."""

    to: str | None
    set_: list[str]
    remove: list[str]
    editors: str | None
    new_ids: bool | None
    """None: keep them, and leave messages that would be dropped as duplicates."""
    admin: list[str]
    ledger: Path | None
    file: Path | None
    options: Options


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
    place: Place,
    selection: Selection,
    configuration: Configuration,
    request: ResendRequest,
    *,
    dry_run: bool,
) -> bool:
    scene = Scene(place, configuration, os.environ)
    routing = _routing(place, configuration, request.to)
    if request.new_ids is None:
        access = Access.of(request.admin, None, configuration.connections)
        routing = guarded(routing, window_by_administration(configuration, access), datetime.now(UTC))
    edits = edits_of(
        request.set_, request.remove, request.editors, configuration, os.environ, new_ids=bool(request.new_ids)
    )
    ledger = Ledger(request.ledger or ledger_of(place), str(place).lower())
    if request.file is not None:
        make = partial(Delivery, scene, ledger, edits, routing)
        return await _resend_file(scene, request, selection, ledger, make, dry_run=dry_run)
    with ledger if not dry_run else contextlib.nullcontext():
        wanted = await wanted_of(place, selection, routing)
        if not announce(wanted, "resend"):
            return not wanted.unreachable and not wanted.unevaluated
        for destination, count in wanted.destinations.items():
            typer.echo(f"  {count:,} to {printable(destination)}")
        if dry_run:
            return True
        outputs = open_outputs(configuration, os.environ)
        delivery = Delivery(scene, ledger, edits, routing, outputs)
        try:
            with progress("resent", len(wanted.sessions)) as advance:
                run = Resend(scene, wanted.sessions, delivery, request.options, advance)
                with stopped_by_signals(run.stop):
                    result = await run.run()
        finally:
            for output in outputs.values():
                await output.close()
        _print_result(result, ledger)
        return result.is_complete and not wanted.unreachable


async def _resend_file(
    scene: Scene,
    request: ResendRequest,
    selection: Selection,
    ledger: Ledger,
    make_delivery: Callable[[dict[str, Output]], Delivery],
    *,
    dry_run: bool,
) -> bool:
    """Send the messages of a file again."""
    file = request.file or Path()

    def letters() -> Iterator[Letter]:
        # Each pass over the file counts its selection again.
        return letters_in(file, scene, replace(selection))

    total = sum(1 for _ in letters())
    typer.echo(f"{messages(total)} of {scene.place} in {file}")
    if dry_run or not total:
        return bool(total)
    with ledger:
        outputs = open_outputs(scene.configuration, scene.settings)
        delivery = make_delivery(outputs)
        try:
            with progress("resent", total) as advance:
                run = FileResend(scene, delivery, request.options.unclear, advance)
                with stopped_by_signals(run.stop):
                    result = await run.run(letters)
        finally:
            for output in outputs.values():
                await output.close()
        _print_result(result, ledger)
        return result.is_complete


def _print_result(result: Result, ledger: Ledger) -> None:
    typer.echo(f"{result.sent:>8,} sent")
    if result.completed_only:
        typer.echo(f"{result.completed_only:>8,} completed: an earlier run had sent them")
    if result.sent_before:
        typer.echo(f"{result.sent_before:>8,} not sent: an earlier run had sent them")
    if result.gone:
        typer.echo(f"{result.gone:>8,} gone: another receiver has taken them meanwhile")
    print_left(result.left)
    open_ = sum(each.state in (SENDING, SENT) for each in ledger.entries.values())
    done = sum(each.state == COMPLETED for each in ledger.entries.values())
    typer.echo(f"ledger: {ledger.path} ({done:,} completed, {open_:,} open)")
    if result.error is not None:
        typer.echo(f"ended early: {printable(str(result.error))}", err=True)
    if result.is_stopped:
        typer.echo("stopped: locks are released; run the command again to continue", err=True)


def _routing(place: Place, configuration: Configuration, to: str | None) -> Routing:
    if to is not None:
        destination = destination_named(to, configuration)
        return lambda _: destination

    def back(letter: Letter) -> Destination | str:
        if letter.source is None:
            return "does not say where it came from: use --to"
        site, path = letter.source
        found = original(path, site, configuration, prefer=place.alias)
        return f"{found}: use --to" if isinstance(found, str) else found

    return back
