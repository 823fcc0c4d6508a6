"""`busway purge`: delete messages of an entity."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder, OlderThan, Where, is_applied
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
    is_deleting = is_applied(apply, "busway purge")

    import asyncio
    import os
    from datetime import UTC, datetime, timedelta

    from cli.durations import duration_of
    from cli.letters.removal import batches_deleted, remove
    from cli.letters.report import announce, messages
    from cli.letters.selection import selection
    from shared.resend.inventory import inventory_of
    from shared.resend.places import entity_named
    from shared.tasks.files import load

    configuration = load(config)
    entity = entity_named(place, configuration)
    chosen = selection(where, older_than=older_than)

    async def purged() -> bool:
        if where is None and is_deleting:
            age = timedelta() if older_than is None else duration_of(older_than, "--older-than")
            deleted = await batches_deleted(entity, datetime.now(UTC) - age)
            if deleted is not None:
                typer.echo(f"{deleted:>8,} deleted")
                # What came after the start is not among these.
                left = await inventory_of(entity, os.environ, chosen)
                count = len(left.sessions) + left.unreachable.total()
                if count:
                    typer.echo(f"{count:>8,} left: locked by a receiver, deferred or scheduled")
                return not count
            typer.echo(
                "the service deletes no batches of this entity: its messages are received and completed", err=True
            )
        if is_deleting:
            return await remove(entity, configuration, chosen, wait=wait, dry_run=False)
        wanted = await inventory_of(entity, os.environ, chosen)
        if announce(wanted, "delete"):
            typer.echo(f"would delete {messages(len(wanted.sessions))}; nothing was changed")
        return not wanted.unevaluated

    if not asyncio.run(purged()):
        raise typer.Exit(1)
