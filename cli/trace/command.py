"""`busway trace`."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder

_NOT_FOUND = 1


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
    from cli.trace.run import hours_between, trace_and_print

    if not trace_and_print(message_id, journal, folder, hours_between(first, last), as_json=as_json):
        raise typer.Exit(_NOT_FOUND)
