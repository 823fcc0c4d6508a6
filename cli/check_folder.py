"""The check of one configuration folder, and the table of its tasks."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.table import Column, Table

from cli.entities import beside, entities_of, unchecked
from cli.host_file import HOST_FILE, host_file_above
from cli.output import console, print_problems
from shared.errors import ConfigError
from shared.printable import printable
from shared.review import Severity, advice, largest_batch, review
from shared.tasks.files import Configuration, load
from shared.tasks.models import TaskFile
from shared.tasks.routes import Route

_MOST_ROWS = 200


def check_folder(folder: Path, entities: Sequence[str], *, strict: bool) -> bool:
    """Print the problems of *folder*, and its tasks if none of them is an error; return whether that is so."""
    try:
        configuration = load(folder)
        known = entities_of([*map(str, beside(folder)), *entities], configuration.connections)
        host = host_file_above(folder)
    except ConfigError as error:
        print_problems(error.problems)
        return False
    findings = review(configuration, known, host)
    notes = unchecked(known, configuration.connections)
    if host is None:
        notes.append(f"Not checked: {HOST_FILE}, which is in no folder above {folder}.")
    elif (large := largest_batch(configuration, known, host)) is not None:
        notes.append(large)
    notes += advice(configuration, host)
    print_problems([*findings, *notes])
    if any(strict or finding.check.severity is Severity.ERROR for finding in findings):
        return False
    if len(configuration.tasks) > _MOST_ROWS:
        print("\n".join(map(printable, _lines(configuration))))
    else:
        console().print(_table(configuration))
    return True


def _lines(configuration: Configuration) -> Iterator[str]:
    """Yield a line for each task: a table of thousands of rows takes seconds to lay out, and nobody reads its frame."""
    for task in configuration.tasks:
        source = f"{configuration.site(task.source.connection)}/{task.source.entity}"
        yield f"{task.task}: {source} {', '.join(_routes(task, configuration).splitlines())}"
    for tap in configuration.taps:
        yield f"{tap.task}: {configuration.site(tap.source.connection)}/{tap.source.entity}"


def _table(configuration: Configuration) -> Table:
    # A name that is cut cannot be copied.
    table = Table(*(Column(each, overflow="fold") for each in ("task", "source", "routes", "rejects")))
    for task in configuration.tasks:
        rejects = (
            "-" if task.rejects is None else f"{configuration.site(task.rejects.connection)}/{task.rejects.entity}"
        )
        source = f"{configuration.site(task.source.connection)}/{task.source.entity}"
        _add(table, task.task, source, _routes(task, configuration), rejects)
    for tap in configuration.taps:
        source = f"{configuration.site(tap.source.connection)}/{tap.source.entity}"
        how = "drained" if tap.tap.peek is None else "peeked"
        _add(table, tap.task, source, f"{how} for the journal of {tap.tap.of}, {tap.tap.side}", "-")
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*("\n".join(map(printable, cell.split("\n"))) for cell in cells))


def _routes(task: TaskFile, configuration: Configuration) -> str:
    return "\n".join(f"{_condition(route)}→ {_targets(route, configuration)}" for route in task.routes)


def _condition(route: Route) -> str:
    return "" if route.when is None else f"when {route.when} "


def _targets(route: Route, configuration: Configuration) -> str:
    return ", ".join(f"{configuration.site(target.connection)}/{target.entity}" for target in route.targets)
