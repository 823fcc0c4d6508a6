"""`busway repair`."""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.output import fail
from cli.places import Folder
from cli.repair.manifest import Ledger, Missing, ledger_of, read
from cli.repair.replay import GOOD, Repair
from shared.config.files import Configuration, load
from shared.errors import ConfigError, Problem


def repair(
    manifest: Annotated[Path, typer.Argument(help="The repair.jsonl of a run of `busway reconcile`.")],
    apply: Annotated[
        bool | None, typer.Option("--apply/--dry-run", help="Send, or only say what would be sent; one of them.")
    ] = None,
    copies: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONNECTION/ENTITY",
            help="Where copies lie besides: a subscription that keeps what its topic gets, say; repeatedly.",
        ),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Where it is noted what has been sent, of a manifest that was copied.")
    ] = None,
    folder: Folder = Path("config"),
) -> None:
    """
    Look for a copy of each missing message, and send it as its task would have.

    Looked through are the dead letters of the task's source, what its hub still keeps, what the taps look at that saw
    the message, and what `--copies` names, such as `west/orders/Subscriptions/journal`. A copy is the message if its id
    and the digests of its body and properties are those of the journal. It goes through the task's own pipeline, with
    the stamps, the id and the journal's records that it would have got; the copy stays where it is. No other message is
    touched.

    What has been sent is noted in one ledger for the manifests of all nights, repaired.jsonl beside the folder `runs`:
    none of them sends it again. A manifest that was copied elsewhere has its ledger beside it, unless `--ledger` names
    another. A repair that was cut off or had no answer may have sent the message that it was at; that one is sent
    again, and arrives twice where the target does not detect duplicates. A message that lies in a queue that the task
    sends to is not sent; of topics and hubs, and of what was consumed meanwhile, only the next reconciliation can tell.
    A target that is away is waited for by the second, not by the `limits.hold` of the task.

    Exit code 0 if nothing is left to do, 1 if messages are left that could not be found or sent.
    """
    if apply is None:
        fail([Problem("busway repair", "was not told what to do", "say --dry-run or --apply")])
    try:
        messages, more = read(manifest)
        configuration = load(folder)
        places = [_place(text, configuration) for text in copies or []]
        noted = Ledger(ledger or ledger_of(manifest))
        counts = asyncio.run(_repaired(noted, messages, configuration, places, apply=apply))
    except ConfigError as error:
        fail(error.problems)
    for state, count in sorted(counts.items()):
        typer.echo(f"{count:6} {state}")
    if apply:
        typer.echo(f"what was sent is noted in {noted.path}")
    if more:
        typer.echo(f"{more} more messages are missing than the manifest holds: reconcile again after this repair")
    if more or any(state not in GOOD for state in counts):
        raise typer.Exit(1)


async def _repaired(
    ledger: Ledger,
    messages: Sequence[Missing],
    configuration: Configuration,
    places: Sequence[tuple[str, str]],
    *,
    apply: bool,
) -> Counter[str]:
    counts: Counter[str] = Counter()
    repair = Repair(configuration, os.environ, places, ledger)
    try:
        with ledger if apply else contextlib.nullcontext():
            for message in messages:
                state, text = (await repair.report(message, apply=apply))[1:]
                counts[state] += 1
                typer.echo(f"{state:12} {message.name}: {text}")
    finally:
        await repair.close()
    return counts


def _place(text: str, configuration: Configuration) -> tuple[str, str]:
    alias, _, entity = text.partition("/")
    connection = configuration.connections.get(alias)
    if connection is None or not entity or connection.kind != "service-bus":
        known = (name for name, each in configuration.connections.items() if each.kind == "service-bus")
        expected = ", ".join(f"{each}/ENTITY" for each in known)
        raise ConfigError([Problem(f"--copies {text}", "is no queue or subscription", f"expected {expected}")])
    return alias, entity
