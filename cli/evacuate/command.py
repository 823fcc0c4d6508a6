"""`busway evacuate`: move messages to another namespace."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder
from cli.topology.options import AdminAddresses, Authority
from shared.resend.options import Unclear

_LONGER_THAN_A_LOCK = 330.0


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
    rate: Annotated[
        float | None, typer.Option(min=0.01, metavar="N", help="Send at most N messages per second.")
    ] = None,
    unclear: Annotated[
        Unclear,
        typer.Option(
            help="What to do with a message that an interrupted run may have sent, if the target does not show it."
        ),
    ] = Unclear.LEAVE,
    wait: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="How long to wait for messages that another receiver has locked."),
    ] = _LONGER_THAN_A_LOCK,
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
    from shared.resend.options import Options

    request = Request(source, to, admin or [], authority, Options(rate, unclear, wait))
    if not evacuate_and_print(request, config, dry_run=dry_run):
        raise typer.Exit(1)
