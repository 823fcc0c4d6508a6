"""`busway import`."""

from pathlib import Path
from typing import Annotated

import typer


def import_sample(
    source: Annotated[Path, typer.Argument(help="The folder with a folder for each task, each with a function.json.")],
    folder: Annotated[Path, typer.Argument(help="The configuration folder to write; it must not exist or be empty.")],
    *,
    settings: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A local.settings.json: connections to one namespace then become one."),
    ] = None,
) -> None:
    """
    Write task files from the configuration of Microsoft's C# replication sample, and list what changes.

    The sample (Azure-Samples/azure-messaging-replication-dotnet) has a function.json for each task. What has no
    equivalent is listed, and so is what you must do by hand. No secret is copied. Example:

        busway import ./functions/config/EventHubCopy config --settings local.settings.json

    Exit code 0: all tasks are written. 1: at least one is not, with the reason.
    """
    from cli.sample_import.run import import_and_print

    raise typer.Exit(import_and_print(source, folder, settings))
