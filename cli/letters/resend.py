"""Messages that are sent again: from an entity, or from an exported file."""

import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from functools import partial
from itertools import batched
from pathlib import Path

import typer

from cli.letters.export_file import exported_letters
from cli.letters.ledger_file import LedgerFile, ledger_of
from cli.letters.report import announce, messages, print_end, print_rest
from cli.output import print_counts
from cli.progress import run_to_end
from cli.silence import waits_for
from shared.assembly.outputs import closing_outputs
from shared.assembly.status import open_status_container
from shared.printable import printable
from shared.resend.delivery import Routing, TargetDelivery
from shared.resend.edits import Edits
from shared.resend.inventory import inventory_of
from shared.resend.ledger import COMPLETED, SENDING, SENT, Ledger, LedgerStore
from shared.resend.ledger_blob import LedgerBlob
from shared.resend.letters import Letter
from shared.resend.numbering import cancel_marks
from shared.resend.options import Options
from shared.resend.places import Scene
from shared.resend.receiver import supply_of
from shared.resend.run import AT_ONCE, Result, Run
from shared.resend.selection import Selection
from shared.resend.source import copies

APP = "app"
"""The value of `--ledger` that means the blob which the dashboard uses."""


async def resend(
    scene: Scene,
    selection: Selection,
    edits: Edits,
    routing: Routing,
    options: Options,
    *,
    file: Path | None,
    ledger: str | None,
    yes: bool,
) -> bool:
    """
    Send the selected messages again, or those in an exported *file*; return whether nothing is left to do.

    *ledger* is a file, APP, or None for the file of the entity.
    """
    place, configuration, settings = scene
    async with contextlib.AsyncExitStack() as opened:
        records = _ledger(scene, ledger, opened)
        if yes:
            await opened.enter_async_context(records)
        is_reachable = True
        if file is None:
            waits_for(str(place))
            found = await inventory_of(place, settings, selection, routing)
            wanted, is_reachable = found.sessions, not found.unreachable
            if not announce(found, "resend"):
                if yes:
                    await cancel_marks(scene, records)
                return is_reachable and not found.unevaluated
            for destination, count in found.destinations.items():
                typer.echo(f"  {count:,} to {printable(destination)}")
            supply = supply_of(place, settings)
        else:
            # Each pass over the file counts its selection again.
            letters = partial(exported_letters, file, place)
            wanted = {letter.key or "": letter.session_id for letter in letters(replace(selection))}
            typer.echo(f"{messages(len(wanted))} of {place} in {file}")
            supply = copies(_pages(letters(replace(selection))))
        if not yes or not wanted:
            return bool(wanted)
        outputs = await opened.enter_async_context(closing_outputs(configuration, settings))
        delivery = TargetDelivery(scene, records, edits, routing, outputs)
        result = await run_to_end(Run(supply, delivery, wanted, options), "resent", len(wanted))
        _print_result(result, records, stays=file is not None)
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
        yield [(letter.key or "", letter) for letter in some]


def _print_result(result: Result, ledger: Ledger, *, stays: bool) -> None:
    typer.echo(f"{result.sent:>8,} sent")
    print_counts((result.sent_before, f"{'not sent' if stays else 'completed'}: an earlier run had sent them"))
    print_rest(result.gone, result.left.items())
    counts = f"{ledger.count(COMPLETED):,} completed, {ledger.count(SENDING, SENT):,} open"
    typer.echo(f"ledger: {ledger.where} ({counts})")
    print_end(result.error, is_stopped=result.is_stopped)
