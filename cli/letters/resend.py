"""Messages that are sent again: from an entity, or from an exported file."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from itertools import batched
from pathlib import Path

import typer

from cli.letters.export_file import exported_letters
from cli.letters.ledger_file import LedgerFile, ledger_of
from cli.letters.report import announce, messages, print_end, print_rest
from cli.output import print_counts, waits_for
from cli.progress import run_to_end
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
from shared.resend.run import AT_ONCE, Run
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
        store: LedgerStore = LedgerFile(ledger_of(place) if ledger is None else Path(ledger))
        if ledger == APP:
            container = open_status_container(configuration, settings)
            opened.push_async_callback(container.close)
            store = LedgerBlob(container, place)
        records = Ledger(store, str(place).lower())
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
            exported = partial(exported_letters, file, place)
            wanted = {letter.key or "": letter.session_id for letter in exported(replace(selection))}
            typer.echo(f"{messages(len(wanted))} of {place} in {file}")

            async def pages() -> AsyncGenerator[list[tuple[str, Letter]]]:
                for some in batched(exported(replace(selection)), AT_ONCE, strict=False):
                    yield [(letter.key or "", letter) for letter in some]

            supply = copies(pages())
        if not yes or not wanted:
            return bool(wanted)
        outputs = await opened.enter_async_context(closing_outputs(configuration, settings))
        delivery = TargetDelivery(scene, records, edits, routing, outputs)
        result = await run_to_end(Run(supply, delivery, wanted, options), "resent", len(wanted))
        typer.echo(f"{result.sent:>8,} sent")
        done = "completed" if file is None else "not sent"
        print_counts((result.sent_before, f"{done}: an earlier run had sent them"))
        print_rest(result.gone, result.left.items())
        counts = f"{records.count(COMPLETED):,} completed, {records.count(SENDING, SENT):,} open"
        typer.echo(f"ledger: {records.where} ({counts})")
        print_end(result.error, is_stopped=result.is_stopped)
        return result.is_complete and is_reachable
