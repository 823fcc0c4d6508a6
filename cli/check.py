"""`busway check`: every problem of the configuration at once."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from cli.output import console, fail
from shared.config.files import Configuration, load
from shared.config.models import Route, TaskFile
from shared.errors import ConfigError


def check(
    folder: Annotated[Path, typer.Argument(help="The folder with connections.yaml and tasks/.")] = Path("config"),
) -> None:
    """
    Load all connections and tasks and print every problem, each with its file and the path in it.

    Exit code 1 if there is any; otherwise a table of the tasks. App settings are not looked at: whether WEST is set is
    the machine's affair, whether a task names a connection that exists is the file's.
    """
    try:
        configuration = load(folder)
    except ConfigError as error:
        fail(error.problems)
    console().print(_table(configuration))


def _table(configuration: Configuration) -> Table:
    table = Table("task", "source", "routes", "rejects", title_justify="left")
    for task in configuration.tasks:
        rejects = (
            "-" if task.rejects is None else f"{configuration.site(task.rejects.connection)}/{task.rejects.entity}"
        )
        source = f"{configuration.site(task.source.connection)}/{task.source.entity}"
        table.add_row(task.task, source, _routes(task, configuration), rejects)
    return table


def _routes(task: TaskFile, configuration: Configuration) -> str:
    return "\n".join(f"{_condition(route)}→ {_target(route, configuration)}" for route in task.routes)


def _condition(route: Route) -> str:
    return "" if route.when is None else f"when {route.when} "


def _target(route: Route, configuration: Configuration) -> str:
    return f"{configuration.site(route.target.connection)}/{route.target.entity}"
