"""The run of `busway repair`: read the manifest, send what is missing, print the counts."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer

from cli.dead.kinds import problems
from cli.dead.ledger_file import LedgerFile
from cli.dead.summary import print_end
from cli.repair.copies import place_of
from cli.repair.manifest import Missing, ledger_of, read
from cli.repair.repair import GOOD, Repair, Report, State
from shared.config.files import Configuration, load
from shared.errors import BuswayError
from shared.printable import printable
from shared.resend.ledger import Ledger
from shared.resend.pipeline_delivery import OPTIONS
from shared.resend.run import Run
from shared.resend.source import CopySource


def repair_and_print(
    manifest: Path,
    copies: Sequence[str],
    ledger: Path | None,
    folder: Path,
    *,
    apply: bool,
    sends_expired: bool = False,
) -> bool:
    """Print what happens to each message of *manifest*; return whether nothing is left to do."""
    with problems():
        messages, more = read(manifest)
        configuration = load(folder)
        places = [place_of(text, configuration) for text in copies]
        file = LedgerFile(ledger or ledger_of(manifest))
        counts: Counter[State] = Counter()

        def report(each: Report) -> None:
            counts[each.state] += 1
            typer.echo(printable(f"{each.state:12} {each.message.name}: {each.text}"))

        repair = Repair(
            configuration,
            os.environ,
            places,
            ledger_in(file, apply=apply),
            report,
            sends_expired=sends_expired,
        )
        error = asyncio.run(repaired(repair, messages, configuration, apply=apply))
        for state, count in sorted(counts.items()):
            typer.echo(f"{count:6} {state}")
        if apply:
            typer.echo(f"the ledger of sent messages is {file.path}")
        if more:
            typer.echo(f"{more} more messages are missing than the manifest has: reconcile again after this repair")
        print_end(error, is_stopped=False)
        return not more and error is None and all(state in GOOD for state in counts)
    return False


def ledger_in(file: LedgerFile, *, apply: bool) -> Ledger:
    """Return the ledger of repairs in *file*; only to be read, unless the repair is to *apply*."""
    return Ledger(file if apply else file.copy(), "repair")


async def repaired(
    repair: Repair, messages: Sequence[Missing], configuration: Configuration, *, apply: bool
) -> BuswayError | None:
    """Send what is missing, or only show it; return the error that has ended the repair early."""
    async with repair.ledger, repair.opened(configuration, os.environ):
        if not apply:
            await repair.show(messages)
            return None
        return (await Run(lambda _: CopySource(repair.copies(messages)), repair, None, OPTIONS).run()).error
