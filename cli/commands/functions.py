"""`busway functions`: whether Azure knows the functions of a published app."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder


def functions(
    resource_group: Annotated[str, typer.Option("--resource-group", "-g", help="Its resource group.")],
    name: Annotated[str, typer.Option("--name", "-n", help="The name of the Function app.")],
    *,
    subscription: Annotated[str, typer.Option(help="Its subscription. [default: that of `az account show`]")] = "",
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="How long to sync and look again.")] = 300.0,
    config: Folder = Path("config"),
) -> None:
    """
    Wait until Azure knows the functions of a published app.

    After a publish the platform may know none of them, or a placeholder only, although the host runs them; then nothing
    starts the app. The command compares the functions of the tasks with those that Azure lists, and asks it to sync
    until they agree. It uses the Azure CLI and its sign-in (`az login`), and needs Website Contributor on the app.

    Exit code 0: Azure knows them all. 1: it does not, or the app reports a problem of its configuration. Example:

        busway functions --resource-group busway --name APP
    """
    from cli.project.published_functions import App, await_functions
    from shared.tasks.files import load

    configuration = load(config)
    expected = [name for task in configuration.tasks for name in task.functions()]
    expected += [name for tap in configuration.taps for name in tap.functions()]
    if not await_functions(App(resource_group, name, subscription), expected, wait, typer.echo):
        raise typer.Exit(1)
