"""The run of `busway import`: read, write, check, list what changes."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import typer

from cli.output import fail, print_problems
from cli.sample_import.reading import Imported, NotImported, read_json, read_task
from cli.sample_import.writing import Connections, task_document, write
from shared.config.files import load
from shared.errors import ConfigError, Problem
from shared.printable import printable

_FILE = "function.json"


def import_and_print(source: Path, folder: Path, settings: Path | None) -> int:
    """Write the configuration of the tasks below *source*; return the exit code."""
    files = sorted(source.glob(f"*/{_FILE}"))
    if not files:
        fail([Problem(str(source), f"has no folder with a {_FILE}", "name the folder of the sample's app")])
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        fail([Problem(str(folder), "exists and is not an empty folder", "name a new folder")])
    connections = Connections(_values(settings))
    tasks, problems = _tasks(files)
    if not tasks:
        fail(problems)
    try:
        write(folder, [task_document(each, connections) for each in tasks], connections)
        load(folder)
    except OSError as error:
        fail([Problem(str(folder), f"cannot be written: {error.strerror}")])
    except ConfigError as error:
        problems += error.problems
    typer.echo(f"{folder}: {len(tasks)} of {len(files)} tasks")
    for line in _changes(tasks, connections, is_merged=settings is not None):
        typer.echo(printable(line))
    print_problems(problems)
    return 1 if problems else 0


def _tasks(files: Sequence[Path]) -> tuple[list[Imported], list[Problem]]:
    tasks: list[Imported] = []
    problems: list[Problem] = []
    for file in files:
        try:
            tasks.append(read_task(file))
        except NotImported as error:
            problems.append(Problem(str(file), f"is not imported: it {error}"))
    return tasks, problems


def _values(file: Path | None) -> Mapping[str, object]:
    if file is None:
        return {}
    try:
        values = read_json(file).get("Values")
    except NotImported as error:
        fail([Problem(str(file), str(error))])
    return values if isinstance(values, dict) else {}


def _changes(tasks: Sequence[Imported], connections: Connections, *, is_merged: bool) -> Iterator[str]:
    """Yield what differs from the sample, and what to do."""
    yield "app settings (NAME, or NAME__fullyQualifiedNamespace for an identity):"
    for setting, old in connections.changed.items():
        yield f"  {setting} replaces {', '.join(sorted(old))}"
    if not is_merged:
        yield "  Connections to one namespace must become one: its name is on repl-path, which prevents loops."
        yield "  --settings local.settings.json does that."
    for task in tasks:
        for note in task.notes:
            yield f"{task.name}: {note}"
    hubs = [each.name for each in tasks if each.source.kind == "event-hubs"]
    if hubs:
        yield f"new: rejects of {', '.join(hubs)}: create these entities, or name others"
        yield "checkpoints: keep AzureWebJobsStorage and the consumer groups, or events are sent again from the start"
    yield "every task: a message is not sent to a site that it has visited (loop_prevention: off sends it)"
    yield "every message: repl-enqueue-time takes the place of the sample's repl-enqueued-time; repl-path is new"
    yield "next: busway check"
