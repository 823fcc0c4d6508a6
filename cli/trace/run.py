"""The run of `busway trace`: get the files, search them, print the hops."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn

import typer

from cli.output import print_problems
from cli.reconcile import journal_at
from cli.trace.show import as_document, as_text
from shared.errors import BuswayError, ConfigError, Problem, TargetUnavailable
from shared.journal.hops import hops
from shared.journal.search import files_in, search

DOWNLOADS = Path("build/trace")

_FAILED = 2
_MOST_HOURS = 24 * 400


def trace_and_print(message_id: str, journal: str | None, folder: Path, hours: Sequence[str], *, as_json: bool) -> bool:
    """Print what the journals of *hours* have of a message; return whether they have any."""
    try:
        source, storage = journal_at(journal, folder)
        files = files_in(on_this_machine(source, storage, hours), hours)
    except ConfigError as error:
        _end(error.problems)
    except BuswayError as error:
        _end([error])
    found = search(files, message_id)
    way = hops(found.records)
    read = f"{len(files)} journal files, {hours[0]} to {hours[-1]}"
    if as_json:
        typer.echo(as_document(message_id, way, read))
    else:
        typer.echo(as_text(message_id, way, read))
    print_problems(found.problems)
    return bool(way)


def hours_between(first: str | None, last: str | None) -> list[str]:
    """Return the hours from *first* to *last*, both included, as 2026-11-20T23; see the options of the command."""
    end = datetime.now(UTC) if last is None else _hour("--to", last, of_day=23)
    begin = end - timedelta(hours=24) if first is None else _hour("--from", first, of_day=0)
    begin = begin.replace(minute=0, second=0, microsecond=0)
    count = int((end - begin) / timedelta(hours=1)) + 1 if begin <= end else 0
    if not 0 < count <= _MOST_HOURS:
        hint = f"choose a --from before --to, and at most {_MOST_HOURS // 24} days"
        _end([Problem(f"{begin:%Y-%m-%dT%H} to {end:%Y-%m-%dT%H}", f"has {count:,} hours", hint)])
    return [f"{begin + timedelta(hours=number):%Y-%m-%dT%H}" for number in range(count)]


def _hour(option: str, text: str, *, of_day: int) -> datetime:
    hour = text if "T" in text else f"{text}T{of_day:02}"
    try:
        return datetime.strptime(hour, "%Y-%m-%dT%H").replace(tzinfo=UTC)
    except ValueError:
        hint = "expected a day or an hour in UTC, like 2026-11-20 or 2026-11-20T23"
        _end([Problem(option, f"got {text!r}", hint)])


def on_this_machine(journal: str, storage: str | None, hours: Sequence[str]) -> Path:
    """Return the folder of *journal*, into which a container's new files are downloaded first."""
    if "://" not in journal:
        return Path(journal)
    from jobs.reconcile.read.staging import JournalUnreachable, container, stage

    client, prefix = container(journal, storage)
    address = f"{client.url.partition('?')[0]}/{prefix}"
    os.umask(0o077)  # the files name messages
    folder = DOWNLOADS / blake2b(address.encode(), digest_size=8).hexdigest()
    try:
        stage(client, prefix, folder, hours=hours)
    except JournalUnreachable as error:
        raise TargetUnavailable(str(error)) from error
    return folder


def _end(problems: Sequence[object]) -> NoReturn:
    print_problems(problems)
    raise typer.Exit(_FAILED)
