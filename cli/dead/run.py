"""The runs of `list`, `show` and `export`, which only read."""

import asyncio
import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

import typer

from cli.dead import listing, showing
from cli.dead.export_file import exported_line
from cli.dead.history import history
from cli.dead.kinds import Kind, problems
from cli.dead.listing import messages
from cli.dead.summary import print_unevaluated
from cli.output import fail
from shared.config.files import load
from shared.errors import BuswayError, ConfigError, Problem
from shared.printable import json_line
from shared.private_file import open_private
from shared.resend.groups import Groups, document
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.places import Place
from shared.resend.selection import Selection


def list_and_print(
    kind: Kind, text: str | None, selection: Selection, folder: Path, *, each: bool, as_json: bool
) -> None:
    """Print the groups of an entity, or each message; of all entities that the tasks name if *text* is None."""
    with problems():
        configuration = load(folder)
        places = [kind.place(text, configuration)] if text is not None else kind.places(configuration)
        if not places:
            raise ConfigError([Problem(f"busway {kind.command} list", "no task has one", "name CONNECTION/ENTITY")])
        asyncio.run(_list(places, selection, each=each, as_json=as_json))


async def _list(places: list[Place], selection: Selection, *, each: bool, as_json: bool) -> None:
    now = datetime.now(UTC)
    failed: list[BuswayError] = []
    for number, place in enumerate(places):
        groups = Groups(place, now)
        try:
            async for letter, _ in peek(place, os.environ):
                if not selection.takes(letter):
                    continue
                if each:
                    if not groups.count and not as_json:
                        typer.echo(f"{place}\n{listing.HEADING}")
                    typer.echo(json_line(document(letter, place)) if as_json else listing.line(letter, now))
                groups.add(letter)
        except BuswayError as error:
            if len(places) == 1:
                raise
            failed.append(error)
            continue
        if as_json and not each:
            typer.echo(json_line(groups.document()))
        elif not as_json and not (each and groups.count):
            typer.echo("\n" * (number > 0) + "\n".join(listing.lines(groups)))
    print_unevaluated(selection.unevaluated)
    if failed:
        fail(failed)


def show_and_print(kind: Kind, text: str, number: int, folder: Path, *, with_body: bool, with_journal: bool) -> None:
    """Print one message, and what the journals have about it."""
    with problems():
        configuration = load(folder)
        place = kind.place(text, configuration)
        asyncio.run(_show(place, number, folder, with_body=with_body, with_journal=with_journal))


async def _show(place: Place, number: int, folder: Path, *, with_body: bool, with_journal: bool) -> None:
    letter: Letter | None = None
    async with contextlib.aclosing(peek(place, os.environ, number, most=1)) as found:
        async for each, _ in found:
            letter = each if each.number == number else None
    if letter is None:
        hint = "the numbers are in the first column of `list --each`"
        raise ConfigError([Problem(f"{place}: {number}", "no message has this sequence number", hint)])
    now = datetime.now(UTC)
    typer.echo("\n".join(showing.lines(letter, place, letter.age(now), with_body=with_body)))
    if not with_journal:
        return
    try:
        records = await asyncio.to_thread(history, letter, folder)
    except ConfigError as error:
        records = [str(error.problems[0])]
    except BuswayError as error:
        records = [f"the journal cannot be read: {error}"]
    typer.echo("  journal:\n" + "\n".join(f"    {each}" for each in records))


def export_and_print(kind: Kind, text: str, selection: Selection, folder: Path, file: Path) -> None:
    """Write the selected messages to a file, as they are."""
    with problems():
        configuration = load(folder)
        place = kind.place(text, configuration)
        asyncio.run(_export(place, selection, file))


async def _export(place: Place, selection: Selection, file: Path) -> None:
    count = 0
    # Complete or not there: nobody drops messages because of half a file.
    beside = file.with_name(file.name + ".part")
    try:
        with open_private(beside) as opened:
            async with contextlib.aclosing(peek(place, os.environ)) as found:
                async for letter, _ in found:
                    if selection.is_complete:
                        break
                    if selection.takes(letter):
                        opened.write(exported_line(letter, place))
                        count += 1
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError([Problem(str(file), f"cannot be written: {error.strerror}")]) from error
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    print_unevaluated(selection.unevaluated)
    typer.echo(f"{messages(count)} of {place} in {file}; they stay in the entity")
