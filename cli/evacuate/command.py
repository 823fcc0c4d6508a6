"""`busway evacuate`: move messages to another namespace."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder, Rate, UnclearChoice, Wait
from cli.topology.options import AdminAddresses, Authority
from shared.resend.options import PATIENCE_SECONDS, Options, Unclear


def evacuate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="CONNECTION[/ENTITY]", help="A namespace, or a queue, topic or TOPIC/Subscriptions/NAME of it."
        ),
    ],
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="CONNECTION[/ENTITY]",
            help="The namespace to move to, where the entities have the same names; or one entity, for one entity.",
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be moved.")] = False,
    rate: Rate = None,
    unclear: UnclearChoice = Unclear.LEAVE,
    wait: Wait = PATIENCE_SECONDS,
    admin: AdminAddresses = None,
    authority: Authority = None,
    config: Folder = Path("config"),
) -> None:
    """
    Move all messages of an entity or a namespace to another namespace.

    Active messages, deferred ones, scheduled ones with their time, sessions with their state, and dead letters with
    their reason. Each is sent, recorded in a ledger, and only then removed, so a run that was stopped or killed can be
    repeated. The entities must exist at the target. It needs the right Manage at both ends.

    Exit code 0: nothing is left. 1: some messages were left; the output says which and why. Example:

        busway evacuate west/orders --to east --dry-run
    """
    from cli.evacuate.run import Request, evacuate_and_print

    request = Request(source, to, admin or [], authority, Options(rate, unclear, wait))
    if not evacuate_and_print(request, config, dry_run=dry_run):
        raise typer.Exit(1)
