"""The check of one configuration folder, and the table of its tasks."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

from cli.entities import HOST_FILE, beside, entities_of, host_file_above, unchecked
from cli.output import console, print_problems, print_wrapped
from shared.errors import ConfigError
from shared.printable import printable
from shared.review import Severity, advice, largest_batch, review
from shared.tasks.files import Configuration, load
from shared.tasks.routes import Target
from shared.tasks.source import Source

_MOST_ROWS = 200
_WIDEST = 10_000
_NOTHING = "-"


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
        tasks, warnings = len(configuration.tasks) + len(configuration.taps), len(findings)
        found = f"no errors, {warnings} warning{'s' if warnings > 1 else ''}" if warnings else "no problems"
        print_wrapped(f"{tasks} {'task' if tasks == 1 else 'tasks'}: {found}")
        print_tasks(configuration, console())
        sys.stdout.flush()
    print_problems([*findings, *notes])
    return is_good


def print_tasks(configuration: Configuration, out: Console) -> None:
    """Print a table of the tasks, or lines if it is too large."""
    # A name that is cut or broken cannot be copied.
    table = Table(*(Column(heading, no_wrap=True) for heading in ("task", "source", "routes", "rejects")))
    rows = list(_rows(configuration))
    for row in rows:
        table.add_row(*("\n".join(map(printable, cell.split("\n"))) for cell in row))
    # A frame of thousands of rows takes seconds, and one that does not fit breaks names inside words.
    if len(rows) <= _MOST_ROWS and (
        Measurement.get(out, out.options.update(width=_WIDEST), table).maximum <= out.width
    ):
        out.print(table)
        return
    for task, source, routes, rejects in rows:
        more = "" if rejects == _NOTHING else f"; rejects {rejects}"
        print_wrapped(f"{task}: {source} {', '.join(routes.splitlines())}{more}")


def _rows(configuration: Configuration) -> Iterator[tuple[str, str, str, str]]:
    def place(end: Source | Target) -> str:
        return f"{configuration.site(end.connection)}/{end.entity}"

    for task in configuration.tasks:
        routes = [
            ("" if route.when is None else f"when {route.when} ") + f"→ {', '.join(map(place, route.targets))}"
            for route in task.routes
        ]
        rejects = _NOTHING if task.rejects is None else place(task.rejects)
        yield task.task, place(task.source), "\n".join(routes), rejects
    for tap in configuration.taps:
        how = "drained" if tap.tap.peek is None else "peeked"
        yield tap.task, place(tap.source), f"{how} for the journal of {tap.tap.of}, {tap.tap.side}", _NOTHING
