"""The removal of messages: received and completed, or in batches that the service deletes."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import typer
from azure.core.exceptions import AzureError

from cli.letters.report import announce, print_end, print_rest
from cli.output import print_counts, waits_for
from cli.progress import progress, run_to_end
from cli.signals import stopped_by_signals
from shared.ends.service_bus.internals import condition_of
from shared.errors import TargetUnavailable
from shared.resend.inventory import inventory_of
from shared.resend.options import PATIENCE_SECONDS, Options
from shared.resend.peek import CHECK
from shared.resend.places import Place
from shared.resend.receiver import management_of, supply_of
from shared.resend.removal import Removal
from shared.resend.run import Run
from shared.resend.selection import Selection

_AT_ONCE = 500
"""The most that a Standard namespace deletes at once."""
_TIMEOUT_SECONDS = 60.0
# What is not an answer about the connection or the name: this entity has no batch delete.
_CANNOT = ("amqp:not-implemented", "amqp:not-allowed", "com.microsoft:operation-not-supported")
_WITHOUT_REASON = "amqp:internal-error"
"""What a batch above the limit is answered with; what an entity without batches answers is published nowhere."""


async def drop(
    place: Place,
    selection: Selection,
    *,
    keys: set[str] | None = None,
    wait: float = PATIENCE_SECONDS,
    yes: bool,
) -> bool:
    """Remove the selected messages of *place*, only those with *keys* if given; return whether none is left."""
    waits_for(str(place))
    if yes and keys is None and selection.is_by_age:
        age = timedelta() if selection.older_than is None else selection.older_than
        deleted = await _batches_deleted(place, datetime.now(UTC) - age)
        if deleted is not None:
            typer.echo(f"{deleted:>8,} dropped")
            # What came after the start is not meant.
            left = await inventory_of(place, os.environ, replace(selection, older_than=age))
            count = len(left.sessions) + left.unreachable.total()
            print_counts((count, "left: locked by a receiver, deferred or scheduled"))
            return not count
        typer.echo("the service deletes no batches of this entity: its messages are received and completed", err=True)
    found = await inventory_of(place, os.environ, selection, keys=keys)
    if not announce(found, "drop"):
        return not found.unevaluated
    if not yes:
        return True
    run = Run(supply_of(place, os.environ), Removal(), found.sessions, Options(patience=wait))
    result = await run_to_end(run, "dropped", len(found.sessions))
    typer.echo(f"{result.completed:>8,} dropped")
    print_rest(result.gone, result.left.items())
    print_end(result.error, is_stopped=result.is_stopped)
    return not result.left and result.error is None and not found.unreachable


async def _batches_deleted(place: Place, before: datetime) -> int | None:
    """Let the service delete the messages enqueued *before* a time; return their number, None if it cannot."""
    deleted, is_stopped = 0, False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True

    with progress("deleted", None) as advance, stopped_by_signals(stop):
        async with management_of(place, os.environ) as connection:
            while not is_stopped:
                try:
                    count = await connection.delete_batch(_AT_ONCE, before, _TIMEOUT_SECONDS)
                except (AzureError, OSError) as error:
                    condition = condition_of(error)
                    if condition in _CANNOT or (not deleted and condition == _WITHOUT_REASON):
                        return deleted or None
                    seen = type(error).__name__ + (f" ({condition})" if condition else "")
                    problem = f"{place}: its messages cannot be deleted, {seen}, though some may be gone; {CHECK}"
                    raise TargetUnavailable(problem) from error
                if not count:
                    break
                deleted += count
                advance(count)
    return deleted
