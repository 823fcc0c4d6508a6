"""`busway trace`: every hop of one message, from the journals."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder
from shared.errors import ConfigError, Problem, TargetUnavailable

_NOT_FOUND, _UNREACHABLE = 1, 2
_MOST_HOURS = 24 * 400


def trace(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE-ID", help="The id of the message, at any site.")],
    *,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL",
            help="A folder with task=… below it, or the URL of a blob container. [default: the container in "
            "config/journal.yaml]",
        ),
    ] = None,
    first: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DAY|HOUR",
            help="The first hour of the journals to read, in UTC: 2026-11-20 or 2026-11-20T23. [default: 24 hours "
            "before the last]",
        ),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="DAY|HOUR", help="The last hour to read; of a day, its last. [default: this hour]"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON.")] = False,
    folder: Folder = Path("config"),
) -> None:
    """
    Show each hop of a message: when it was received, what changed, where it was sent, and why it stopped.

    The command reads the journals of all tasks and taps. An id that an editor changes is followed in both directions.
    Files of a container are downloaded to build/trace and kept there, so that the next trace is faster. Times are UTC
    of the instances that wrote the records; a hop begins when the source enqueued the message.

    Exit code 0: found. 1: no record of it in these hours. 2: the journal cannot be read. Example:

    busway trace order-4711 --from 2026-11-20
    """
    from cli.hop_text import as_document, as_text
    from cli.journal import files_downloaded_before, hours_between, journal_files
    from cli.output import print_problems
    from shared.journal.hops import hops
    from shared.journal.search import search

    end = datetime.now(UTC) if last is None else _hour("--to", last, of_day=23)
    begin = end - timedelta(hours=24) if first is None else _hour("--from", first, of_day=0)
    hours = hours_between(begin, end)
    if not 0 < len(hours) <= _MOST_HOURS:
        hint = f"choose a --from before --to, and at most {_MOST_HOURS // 24} days"
        raise ConfigError([Problem(f"{begin:%Y-%m-%dT%H} to {end:%Y-%m-%dT%H}", f"has {len(hours):,} hours", hint)])
    unreachable: list[TargetUnavailable] = []
    try:
        files = journal_files(journal, folder, hours)
    except TargetUnavailable as error:
        files = files_downloaded_before(journal, folder, hours)
        if not files:
            raise
        unreachable.append(error)
    found = search(files, message_id)
    way = hops(found.records)
    show = as_document if as_json else as_text
    typer.echo(show(message_id, way, f"{len(files)} journal files, {hours[0]} to {hours[-1]}"))
    print_problems([*found.problems, *unreachable])
    if unreachable:
        print_problems(["the answer is from files that an earlier trace has downloaded; newer records are not in it"])
        raise typer.Exit(_UNREACHABLE)
    if not way:
        raise typer.Exit(_NOT_FOUND)


def _hour(option: str, text: str, *, of_day: int) -> datetime:
    hour = text if "T" in text else f"{text}T{of_day:02}"
    try:
        return datetime.strptime(hour, "%Y-%m-%dT%H").replace(tzinfo=UTC)
    except ValueError as error:
        hint = "expected a day or an hour in UTC, like 2026-11-20 or 2026-11-20T23"
        raise ConfigError([Problem(option, f"got {text!r}", hint)]) from error
