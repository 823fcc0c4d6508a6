"""`busway checkpoints`: how far the app has read an event hub, and the reset after the hub was created again."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder, Yes


def checkpoints(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task whose source is an event hub.")],
    *,
    reset: Annotated[
        bool,
        typer.Option("--reset", help="Delete the checkpoints that belong to an earlier hub of this name."),
    ] = False,
    partition: Annotated[
        list[str] | None,
        typer.Option(help="With --reset: delete the checkpoint of this partition, whatever it is. Can be repeated."),
    ] = None,
    yes: Yes = False,
    config: Folder = Path("config"),
) -> None:
    """
    Show the checkpoint of each partition of a task's hub beside the events that the hub has.

    A hub that was deleted and created again counts its events from 0, and the checkpoints of the earlier one make the
    app wait for numbers that may never come, or pass over events. Without a checkpoint the app starts with the first
    event of the partition. Stop the app before a reset, or it writes its checkpoints again.

    It needs AzureWebJobsStorage, the app setting with the app's storage account, as an environment variable.

    Exit code 0: all checkpoints belong to the hub, or were reset. 1: some do not. Example:

        busway checkpoints telemetry-west-to-east --reset --yes
    """
    import asyncio
    import os

    from cli.checkpoints.hub_checkpoints import HubCheckpoints, opened_store
    from cli.hub_reader import hub_of
    from cli.output import print_only_shown
    from shared.errors import ConfigError, Problem
    from shared.resend.places import task_named
    from shared.tasks.files import load

    configuration = load(config)
    file = task_named(task, configuration)
    if file is None or file.source.hub is None:
        known = ", ".join(task.task for task in configuration.tasks if task.source.hub) or "a task with a hub"
        raise ConfigError([Problem(task, "is not a task that reads an event hub", f"expected one of {known}")])
    if (partition or yes) and not reset:
        option = "--partition" if partition else "--yes"
        raise ConfigError([Problem(option, "only goes with --reset", "add --reset, or leave it out")])
    hub = hub_of(configuration, file, os.environ)
    with opened_store(os.environ, hub.namespace, hub.name, hub.consumer_group) as store:
        found = asyncio.run(HubCheckpoints.judge(store.read(), hub, file, configuration, os.environ))
        typer.echo(f"{configuration.site(file.source.connection)}/{hub.where}, read by {file.task}")
        for line in found.lines():
            typer.echo(line)
        if reset:
            for line in found.reset(store, partition or [], yes=yes):
                typer.echo(line)
            if not yes:
                print_only_shown()
    if not reset and not found.are_current:
        raise typer.Exit(1)
