"""`busway package`."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder


def package(
    out: Annotated[Path, typer.Option(help="The folder to write; an app from an earlier run is replaced.")] = Path(
        "build/app"
    ),
    config: Folder = Path("config"),
) -> None:
    """
    Write the function app with the configuration of this project, ready for `func azure functionapp publish`.

    The app is that of the installed Busway, which must have the version in `.busway-version` beside the configuration.
    The project's own host.json is used if it has one. Nothing is written if `busway check` finds an error. Example:

        busway package

        cd build/app && func azure functionapp publish APP --python
    """
    from cli.project.app_folder import write_app

    write_app(config, out)
