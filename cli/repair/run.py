"""The run of `busway repair`: read the manifest, handle each message, print the counts."""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer

from cli.output import fail
from cli.repair.manifest import Ledger, Missing, ledger_of, read
from cli.repair.replay import GOOD, Repair
from shared.config.files import Configuration, load
from shared.errors import ConfigError, Problem
from shared.printable import printable


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
    try:
        messages, more = read(manifest)
        configuration = load(folder)
        places = [_place(text, configuration) for text in copies]
        opened = Ledger(ledger or ledger_of(manifest))
        counts = asyncio.run(_repair(opened, messages, configuration, places, apply=apply, sends_expired=sends_expired))
    except ConfigError as error:
        fail(error.problems)
    for state, count in sorted(counts.items()):
        typer.echo(f"{count:6} {state}")
    if apply:
        typer.echo(f"the ledger of sent messages is {opened.path}")
    if more:
        typer.echo(f"{more} more messages are missing than the manifest has: reconcile again after this repair")
    return not more and all(state in GOOD for state in counts)


async def _repair(
    ledger: Ledger,
    messages: Sequence[Missing],
    configuration: Configuration,
    places: Sequence[tuple[str, str]],
    *,
    apply: bool,
    sends_expired: bool,
) -> Counter[str]:
    counts: Counter[str] = Counter()
    repair = Repair(configuration, os.environ, places, ledger, sends_expired=sends_expired)
    try:
        with ledger if apply else contextlib.nullcontext():
            for message in messages:
                state, text = (await repair.report(message, apply=apply))[1:]
                counts[state] += 1
                typer.echo(printable(f"{state:12} {message.name}: {text}"))
    finally:
        await repair.close()
    return counts


def _place(text: str, configuration: Configuration) -> tuple[str, str]:
    alias, _, entity = text.partition("/")
    connection = configuration.connections.get(alias)
    if connection is None or not entity or connection.kind != "service-bus":
        known = (name for name, each in configuration.connections.items() if each.kind == "service-bus")
        expected = ", ".join(f"{each}/ENTITY" for each in known)
        raise ConfigError([Problem(f"--copies {text}", "is not a queue or subscription", f"expected {expected}")])
    return alias, entity
