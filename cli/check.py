"""`busway check`: every problem of the configuration at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from cli.entities import beside, entities_of, unchecked
from cli.output import console, tell
from shared.config.files import Configuration, load
from shared.config.models import Route, TaskFile
from shared.config.review import Severity, review
from shared.errors import ConfigError


def check(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders with connections.yaml and tasks/, each judged by itself. [default: config]"),
    ] = None,
    entities: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[CONNECTION=]FILE",
            help="Config.json with the entities of a connection, that of the file's name unless given; repeatedly. "
            "Those in FOLDER/entities are read anyway.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings fail the check too.")] = False,
) -> None:
    """
    Load all connections and tasks and print every problem, each with its file and the path in it.

    What can be read is then judged as a whole: loops, rules that select nothing, routes that nothing comes to, and so
    on, each finding with its remedy; docs/checks.md lists them. Errors are what surely loses messages or sends them
    round for ever, all else is a warning. Exit code 1 for problems and errors, with --strict for warnings too;
    otherwise a table of the tasks.

    What namespaces hold is known only from their Config.json, in the format of Microsoft's emulators: those in
    FOLDER/entities, and those that `--entities` names. App settings are not looked at: whether WEST is set is the
    machine's affair, whether a task names a connection that exists is the file's. Example:

    busway check --entities infra/emulators/west.json --entities infra/emulators/east.json
    """
    names = folders or [Path("config")]
    has_failed = False
    for folder in names:
        if len(names) > 1:
            typer.echo(f"{folder}:", err=True)
        has_failed |= not _is_good(folder, entities or [], strict=strict)
    if has_failed:
        raise typer.Exit(1)


def _is_good(folder: Path, entities: Sequence[str], *, strict: bool) -> bool:
    """Tell what is wrong in *folder*, and show its tasks where that is nothing that fails the check."""
    try:
        configuration = load(folder)
        known = entities_of([*map(str, beside(folder)), *entities], configuration.connections)
    except ConfigError as error:
        tell(error.problems)
        return False
    findings = review(configuration, known)
    tell([*findings, *unchecked(known, configuration.connections)])
    if any(strict or finding.check.severity is Severity.ERROR for finding in findings):
        return False
    console().print(_table(configuration))
    return True


def _table(configuration: Configuration) -> Table:
    table = Table("task", "source", "routes", "rejects", title_justify="left")
    for task in configuration.tasks:
        rejects = (
            "-" if task.rejects is None else f"{configuration.site(task.rejects.connection)}/{task.rejects.entity}"
        )
        source = f"{configuration.site(task.source.connection)}/{task.source.entity}"
        table.add_row(task.task, source, _routes(task, configuration), rejects)
    for tap in configuration.taps:
        source = f"{configuration.site(tap.source.connection)}/{tap.source.entity}"
        how = "drained" if tap.tap.peek is None else "peeked"
        table.add_row(tap.task, source, f"{how} for the journal of {tap.tap.of}, {tap.tap.side}", "-")
    return table


def _routes(task: TaskFile, configuration: Configuration) -> str:
    return "\n".join(f"{_condition(route)}→ {_target(route, configuration)}" for route in task.routes)


def _condition(route: Route) -> str:
    return "" if route.when is None else f"when {route.when} "


def _target(route: Route, configuration: Configuration) -> str:
    return f"{configuration.site(route.target.connection)}/{route.target.entity}"
