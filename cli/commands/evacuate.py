"""`busway evacuate`: move messages to another namespace."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder, Rate, UnclearChoice, Wait, Yes
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
    yes: Yes = False,
    rate: Rate = None,
    unclear: UnclearChoice = Unclear.LEAVE,
    wait: Wait = PATIENCE_SECONDS,
    config: Folder = Path("config"),
) -> None:
    """
    Move all messages of an entity or a namespace to another namespace.

    Active messages, deferred ones, scheduled ones with their time, sessions with their state, and dead letters with
    their reason. Each is sent, recorded in a ledger, and only then removed, so a run that was stopped or killed can be
    repeated. The entities must exist at the target. It needs the right Manage at both ends. A source that `busway pause
    --close-source` has closed is opened meanwhile, and closed again.

    Exit code 0: nothing is left. 1: some messages were left; the output says which and why. Example:

        busway evacuate west/orders --to east --yes
    """
    import asyncio
    import os

    from cli.evacuation import report
    from cli.evacuation.pairs import pairs_of
    from cli.evacuation.pauses import pauses_of
    from cli.output import print_only_shown
    from shared.tasks.files import load

    configuration = load(config)
    pairs = pairs_of(source, to, configuration, asyncio.run(pauses_of(configuration, os.environ)))
    moving = (
        report.evacuate(pairs, configuration, Options(rate, unclear, wait))
        if yes
        else report.show(pairs, configuration, rate)
    )
    is_complete = asyncio.run(moving)
    if not yes:
        print_only_shown()
    if not is_complete:
        raise typer.Exit(1)
