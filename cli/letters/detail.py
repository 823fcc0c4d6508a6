"""One message in full: why it was given up, its properties with their types, its body, its journal records."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import typer

from cli.dry_run.show import BODY, view
from cli.durations import age_text
from cli.hop_text import as_text
from cli.journal import hours_between, journal_files
from cli.output import waits_for
from shared.errors import BuswayError, ConfigError, MessageRejected, Problem
from shared.journal.hops import hops
from shared.journal.search import search
from shared.printable import printable
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.places import Place

_BEFORE, _AFTER = timedelta(hours=1), timedelta(hours=2)


async def print_letter(place: Place, number: int, folder: Path, *, with_body: bool, with_journal: bool) -> None:
    """Print one message, and what the journals have about it; raises ConfigError if no message has this *number*."""
    waits_for(str(place))
    letter: Letter | None = None
    async with contextlib.aclosing(peek(place, os.environ, number, most=1)) as found:
        async for each, _ in found:
            letter = each if each.number == number else None
    if letter is None:
        hint = "the numbers are in the first column of `list --each`"
        raise ConfigError([Problem(f"{place}: {number}", "no message has this sequence number", hint)])
    typer.echo("\n".join(_lines(letter, place, letter.age(datetime.now(UTC)), with_body=with_body)))
    if with_journal:
        records = await asyncio.to_thread(_history, letter, folder)
        typer.echo("  journal:\n" + "\n".join(f"    {line}" for line in records))


def _history(letter: Letter, folder: Path) -> list[str]:
    """Return the lines about *letter* from the journals, from the hour before it was enqueued to two hours after."""
    if letter.message_id is None or letter.enqueued_time is None:
        return ["the journals are searched by message id, and it has none"]
    enqueued = datetime.fromtimestamp(letter.enqueued_time / 1000, UTC)
    hours = hours_between(enqueued - _BEFORE, enqueued + _AFTER)
    try:
        found = search(journal_files(None, folder, hours), letter.message_id)
    except ConfigError as error:
        return [str(error.problems[0])]
    except BuswayError as error:
        return [f"the journal cannot be read: {error}"]
    text = as_text(letter.message_id, hops(found.records), f"the journals of {hours[0]} to {hours[-1]}")
    return [*text.split("\n"), *map(printable, found.problems)]


def _lines(letter: Letter, place: Place, age: float | None, *, with_body: bool) -> Iterator[str]:
    """Yield the message as text; its body is only for a person's screen."""
    since = "" if age is None else f", {age_text(age)} ago"
    yield f"{place}, sequence number {letter.number}, enqueued {letter.enqueued}{since}"
    yield f"  reason: {printable(letter.reason)}"
    if letter.description is not None:
        yield f"  description: {printable(letter.description)}"
    if letter.source is not None:
        yield f"  from: {printable('/'.join(letter.source))}" + (
            "" if letter.task is None else f", rejected by task {printable(letter.task)}"
        )
    try:
        shown = view(letter.readable())
    except MessageRejected as error:
        yield f"  {len(letter.content)} bytes that cannot be read: {printable(error.description)}"
        return
    if letter.is_wrapped:
        yield "  the message is the body of this one; it is shown as the task received it"
    body = shown.pop(BODY)
    yield from (f"  {name}: {value}" for name, value in shown.items())
    if with_body:
        yield "  body:"
        yield from (f"    {line}" for line in body.split("\n"))
    else:
        yield "  body: not shown"
