"""`busway new`: a project that holds only a configuration."""

from pathlib import Path
from typing import Annotated

import typer


def new(
    folder: Annotated[Path, typer.Argument(help="The folder of the project, which must not exist or be empty.")],
    *,
    example: Annotated[
        str, typer.Option(help="The example in config/examples of Busway to begin with.")
    ] = "plain-copy",
) -> None:
    """
    Write a project that holds only a configuration: connections, a task, a workflow, and a README with the commands.

    The project names the version of Busway that it is written for in `.busway-version`; an upgrade changes that file.

    Example:
        busway new my-replicator

        cd my-replicator && busway check && busway start --port 0

    """
    from cli.project.project import write_project

    write_project(folder, example)
