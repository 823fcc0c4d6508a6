"""`busway package`: what is deployed, with a project's configuration."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder


def package(
    out: Annotated[
        Path,
        typer.Option(help="The folder of the app, with `infra` and `nightly` beside it. Earlier ones are replaced."),
    ] = Path("build/app"),
    config: Folder = Path("config"),
) -> None:
    """
    Write what is deployed: the function app with this configuration, the Bicep templates with what its tasks need, and
    what `az acr build` makes the image of the nightly reconciliation of.

    All of it is that of the installed Busway, which must have the version in `.busway-version` beside the
    configuration. The project's own host.json is used if it has one. Without config/journal.yaml the app gets a
    journal in blobs, with the app setting JOURNAL. Nothing is written if `busway check` finds an error. Example:

        busway package

        az deployment group create --resource-group GROUP --name busway --parameters infra/main.bicepparam

        cd build/app && func azure functionapp publish APP --python
    """
    from cli.project.project import write_package

    write_package(config, out)
