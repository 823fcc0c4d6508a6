"""`busway checkpoints`: how far the app has read an event hub, and the reset after the hub was created again."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder


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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --reset: only show what would be deleted.")] = False,
    config: Folder = Path("config"),
) -> None:
    """
    Show the checkpoint of each partition of a task's hub beside the events that the hub has.

    A hub that was deleted and created again counts its events from 0, and the checkpoints of the earlier one make the
    app wait for numbers that may never come, or pass over events. Without a checkpoint the app starts with the first
    event of the partition. Stop the app before a reset, or it writes its checkpoints again.

    It needs AzureWebJobsStorage, the app setting with the app's storage account, as an environment variable.

    Exit code 0: all checkpoints belong to the hub, or were reset. 1: some do not. Example:

        busway checkpoints telemetry-west-to-east --reset --dry-run
    """
    from cli.checkpoints.run import show_or_reset

    if not show_or_reset(task, config, reset=reset, partitions=partition or [], dry_run=dry_run):
        raise typer.Exit(1)
