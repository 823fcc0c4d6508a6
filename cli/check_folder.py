"""The check of one configuration folder, and the table of its tasks."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

from cli.entities import beside, entities_of, unchecked
from cli.host_file import HOST_FILE, host_file_above
from cli.output import console, print_problems, print_wrapped
from shared.errors import ConfigError
from shared.printable import printable
from shared.review import Severity, advice, largest_batch, review
from shared.tasks.files import Configuration, load
from shared.tasks.models import TaskFile
from shared.tasks.routes import Route

_MOST_ROWS = 200
_WIDEST = 10_000


def check_folder(folder: Path, entities: Sequence[str], *, strict: bool, deploys: bool = False) -> bool:
    """Print the tasks of *folder* if it has no errors, and all problems; return whether it has none."""
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
    elif deploys and (large := largest_batch(configuration, known, host)) is not None:
        notes.append(large)
    notes += advice(configuration, host)
    is_good = not any(strict or finding.check.severity is Severity.ERROR for finding in findings)
    if is_good:
        print_wrapped(_verdict(configuration, len(findings)))
        print_tasks(configuration, console())
        sys.stdout.flush()
    print_problems([*findings, *notes])
    return is_good


def _verdict(configuration: Configuration, warnings: int) -> str:
    tasks = len(configuration.tasks) + len(configuration.taps)
    found = (
        "no problems"
        if not warnings
        else "no errors, 1 warning"
        if warnings == 1
        else f"no errors, {warnings} warnings"
    )
    return f"{tasks} {'task' if tasks == 1 else 'tasks'}: {found}"


def print_tasks(configuration: Configuration, out: Console) -> None:
    """Print a table of the tasks, or lines if it is too large."""
    table = _table(configuration)
    # A frame of thousands of rows takes seconds, and one that does not fit breaks names inside words.
    if (
        table.row_count > _MOST_ROWS
        or Measurement.get(out, out.options.update(width=_WIDEST), table).maximum > out.width
    ):
        for line in _lines(configuration):
            print_wrapped(line)
    else:
        out.print(table)


def _lines(configuration: Configuration) -> Iterator[str]:
    """Yield a line for each task."""
    for task in configuration.tasks:
        source = f"{configuration.site(task.source.connection)}/{task.source.entity}"
        rejects = "" if task.rejects is None else f"; rejects {_rejects(task, configuration)}"
        yield f"{task.task}: {source} {', '.join(_routes(task, configuration).splitlines())}{rejects}"
    for tap in configuration.taps:
        yield f"{tap.task}: {configuration.site(tap.source.connection)}/{tap.source.entity}"


def _table(configuration: Configuration) -> Table:
    # A name that is cut or broken cannot be copied.
    table = Table(*(Column(each, no_wrap=True) for each in ("task", "source", "routes", "rejects")))
    for task in configuration.tasks:
        rejects = _rejects(task, configuration)
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


def _rejects(task: TaskFile, configuration: Configuration) -> str:
    return "-" if task.rejects is None else f"{configuration.site(task.rejects.connection)}/{task.rejects.entity}"


def _condition(route: Route) -> str:
    return "" if route.when is None else f"when {route.when} "


def _targets(route: Route, configuration: Configuration) -> str:
    return ", ".join(f"{configuration.site(target.connection)}/{target.entity}" for target in route.targets)
