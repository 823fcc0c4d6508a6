"""`busway smoke`: send a marked message through each route, and wait for it."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder


def smoke(
    *,
    routes: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK[:N]", help="Only this task, or its route N, from 0; may be repeated."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Send. Without it, only show what would be sent.")] = False,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=1, max=3600, help="Seconds for each message to arrive.")
    ] = 180.0,
    messages: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Messages to choose from, as for `busway try`; the default is made up."),
    ] = None,
    subscriptions: Annotated[
        list[str] | None,
        typer.Option(
            "--watch", metavar="CONNECTION/TOPIC/Subscriptions/NAME", help="Where to look for messages of a topic."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per route, one per line.")] = False,
    folder: Folder = Path("config"),
) -> None:
    """
    Send a marked message through each route, and wait until it is at the target.

    **Applications that receive from these entities, and other subscriptions of the topics, get the messages too**, so
    choose the routes with `--routes`, and look at the list without `--yes` first. A message has the application
    property `busway-smoke` and expires after ten minutes.

    An app that has scaled to zero takes up to two minutes for its first message, so the command waits for three.

    For each route the command makes up a message that the rules of the source and of the routes select, tries the
    task's own editors on it, and sends it. It then peeks at the target, which takes no message from an application. If
    the message does not show there, it looks in the source, the dead letters, the rejects, the journal and the status
    for the reason. At the end it removes its messages: by their session, and from an entity without sessions only if it
    holds nothing else.

    App settings are those of `busway send`; an Azure identity needs the roles Data Sender on the sources and Data
    Receiver on the targets.

    Exit code 0: every message has arrived. 1: at least one has not, or no one knows. 2: some routes cannot be tried, or
    the configuration has problems. Without `--yes`: 0 if every route can be tried. Example:

        busway smoke --routes orders --yes
    """
    from cli.entities import beside, entities_of
    from cli.signals import run_until_signalled
    from cli.smoke.smoke_test import SmokeTest, routes_named
    from shared.tasks.files import load

    configuration = load(folder)
    entities = entities_of([*map(str, beside(folder))], configuration.connections)
    wanted = routes_named(routes or [], configuration)
    test = SmokeTest(folder, configuration, entities, subscriptions or [], as_json=as_json)
    code = run_until_signalled(test.run(wanted, messages, wait, is_sending=yes))
    raise typer.Exit(1 if code is None else code)
