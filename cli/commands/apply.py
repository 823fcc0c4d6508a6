"""`busway apply`: create and change entities until they are as the tasks need them."""

from pathlib import Path

import typer

from cli.options import Connections, Folder, Prune, Yes

_CANCELLED = 130


def apply(
    *,
    connections: Connections = None,
    config: Folder = Path("config"),
    prune: Prune = False,
    yes: Yes = False,
) -> None:
    """
    Take the steps of the plan: create and change queues, topics, subscriptions and rules.

    Without --yes it is `busway plan`. Each step is one request. If one fails, the others that do not
    need it are taken all the same; run the command again for what is left, also after Ctrl-C or a crash. What is sent
    to is created before what sends, and a new subscription has only its own rule from its first message on. Event hubs
    are not changed: the commands for them are printed.

    Exit code 0: every entity is as needed. 1: a step failed, or a namespace cannot be read. 3: there are steps to take,
    with --yes. 4: all steps are taken, and only a person can remove what is left. 130: cancelled with Ctrl-C. 2:
    unknown options.

    Example:
    busway apply west east --yes

    """
    from cli.output import print_only_shown
    from cli.topology.application import Application
    from cli.topology.plan import load_needs, make_plan
    from cli.topology.plan_text import exit_code, print_plan

    configuration, needs = load_needs(config, connections or [])
    found = make_plan(configuration, needs)
    print_plan(found, prune=prune)
    if not found.steps and not (prune and found.extras):
        raise typer.Exit(found.exit_code)
    if not yes:
        print_only_shown()
        raise typer.Exit(exit_code(found, prune=prune))
    typer.echo("")
    application = Application(found, prune=prune)
    try:
        application.run()
    except KeyboardInterrupt:
        typer.echo(f"Cancelled after {application.counts}. Run the command again for the rest.", err=True)
        raise typer.Exit(_CANCELLED) from None
    left = make_plan(configuration, needs)
    typer.echo(f"\n{application.summary(left)}")
    raise typer.Exit(left.exit_code if application.is_complete(left) else 1)
