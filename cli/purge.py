"""`busway purge`: delete messages of an entity."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder, OlderThan, Where
from shared.resend.options import PATIENCE_SECONDS


def purge(
    place: Annotated[
        str,
        typer.Argument(
            metavar="CONNECTION/ENTITY",
            help="A queue or TOPIC/Subscriptions/NAME, either with /$DeadLetterQueue.",
        ),
    ],
    *,
    where: Where = None,
    older_than: OlderThan = None,
    apply: Annotated[
        bool | None, typer.Option("--apply/--dry-run", help="Delete the messages, or only count them.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long to wait for messages that another receiver has locked, with --where.",
        ),
    ] = PATIENCE_SECONDS,
    config: Folder = Path("config"),
) -> None:
    """
    Delete the messages of a queue or subscription for good; a dry run counts them first.

    Without --where, the service deletes them itself, in batches; messages that came after the start, and those that a
    receiver has locked, stay. With --where, in an entity with sessions, and where the service deletes no batches
    (partitioned entities), they are received and completed. Deferred and scheduled messages stay.

    To keep a copy, use `busway rejects export`, which writes the messages of any queue to a file. Exit code 0: nothing
    selected is left. 1: some messages were left. Example:

    busway purge west/orders --older-than 7d --dry-run
    """
    from cli.output import fail
    from shared.errors import Problem

    if apply is None:
        fail([Problem("busway purge", "choose --dry-run or --apply")])

    from cli.dead.purge_run import purge_and_print

    if not purge_and_print(place, where, older_than, config, apply=apply, wait=wait):
        raise typer.Exit(1)
