"""The run of `busway purge`."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import typer
from azure.core.exceptions import AzureError

from cli.dead.ages import duration_of
from cli.dead.drop_run import remove
from cli.dead.kinds import problems
from cli.dead.listing import messages
from cli.dead.progress import progress, stopped_by_signals
from cli.dead.selection import selection
from cli.dead.summary import announce
from shared.azure.service_bus_internals import ManagementConnection, condition_of
from shared.config.files import Configuration, load
from shared.errors import TargetUnavailable
from shared.resend.inventory import inventory_of
from shared.resend.peek import CHECK
from shared.resend.places import Place, entity_named
from shared.resend.receiver import management_of

_AT_ONCE = 500
"""The most that a Standard namespace deletes at once."""
_TIMEOUT_SECONDS = 60.0
# What is not an answer about the connection or the name: this entity has no batch delete.
_CANNOT = ("amqp:not-implemented", "amqp:not-allowed", "com.microsoft:operation-not-supported")


def purge_and_print(
    text: str, where: str | None, older_than: str | None, folder: Path, *, apply: bool, wait: float
) -> bool:
    """Delete the selected messages, or count them; return whether none of them is left."""
    with problems():
        configuration = load(folder)
        place = entity_named(text, configuration)
        return asyncio.run(_purge(place, configuration, where, older_than, apply=apply, wait=wait))
    return False


async def _purge(
    place: Place, configuration: Configuration, where: str | None, older_than: str | None, *, apply: bool, wait: float
) -> bool:
    chosen = selection(where, None, older_than, None, None)
    if where is None and apply:
        age = timedelta() if older_than is None else duration_of(older_than, "--older-than")
        deleted = await _delete_batches(place, datetime.now(UTC) - age)
        if deleted is not None:
            typer.echo(f"{deleted:>8,} deleted")
            # What came after the start is not among these.
            left = await inventory_of(place, os.environ, chosen)
            count = len(left.sessions) + left.unreachable.total()
            if count:
                typer.echo(f"{count:>8,} left: locked by a receiver, deferred or scheduled")
            return not count
        typer.echo("the service deletes no batches of this entity: its messages are received and completed", err=True)
    if apply:
        return await remove(place, configuration, chosen, wait=wait, dry_run=False)
    wanted = await inventory_of(place, os.environ, chosen)
    if announce(wanted, "delete"):
        typer.echo(f"would delete {messages(len(wanted.sessions))}; nothing was changed")
    return not wanted.unevaluated


async def _delete_batches(place: Place, before: datetime) -> int | None:
    """Let the service delete the messages enqueued *before* a time; return their number, None if it cannot."""
    deleted, is_stopped = 0, False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True

    with progress("deleted", None) as advance, stopped_by_signals(stop):
        async with management_of(place, os.environ) as connection:
            try:
                while not is_stopped and (count := await _delete(connection, place, before)):
                    deleted += count
                    advance(count)
            except _NoBatchesError:
                return deleted or None
    return deleted


class _NoBatchesError(Exception):
    """The service does not delete batches of the entity."""


async def _delete(connection: ManagementConnection, place: Place, before: datetime) -> int:
    try:
        return await connection.delete_batch(_AT_ONCE, before, _TIMEOUT_SECONDS)
    except (AzureError, OSError) as error:
        condition = condition_of(error)
        if condition in _CANNOT:
            raise _NoBatchesError from error
        seen = type(error).__name__ + (f" ({condition})" if condition else "")
        raise TargetUnavailable(f"{place}: its messages cannot be deleted, {seen}; {CHECK}") from error
