"""Tasks that are paused or resumed side by side, each with its source."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import typer

from cli.output import print_only_shown, print_problems, problems_of, waits_for
from cli.pause.entity import Entity
from cli.pause.steering import Steering
from cli.places import tasks_named
from cli.signals import run_until_signalled
from shared.assembly.status import open_store, store_problem
from shared.errors import BuswayError, ConfigError, Problem
from shared.printable import printable
from shared.status.store import StatusStore
from shared.tasks.files import Configuration, load
from shared.tasks.journal_models import TapFile
from shared.tasks.models import TaskFile
from shared.tasks.switches import switch_of

_CANCELLED = 130


def steer(
    tasks: Sequence[str],
    folder: Path,
    work: Callable[[Steering], Awaitable[bool]],
    *,
    uses_source: bool,
    closes: bool = False,
    yes: bool,
) -> int:
    """
    Do *work* with each task, and print its steps; return the exit code. Raises ConfigError.

    With *uses_source* the work is also on the status of the queue or subscription, which it *closes* or opens again;
    without *yes* it only shows what it would do.
    """
    configuration = load(folder)
    files = tasks_named(tasks, configuration)
    waits_for("the storage of the status")
    _check(configuration, files, closes=closes)

    async def one(file: TaskFile, store: StatusStore) -> bool:
        source = file.source
        connection = configuration.connections[source.connection]
        has_status = uses_source and source.hub is None and connection.is_namespace
        entity = Entity(source, connection) if has_status else None
        try:
            say = partial(_say, file.task)
            return await work(Steering(file.task, store, entity, say))
        except BuswayError as error:
            print_problems(f"{file.task}: {problem}" for problem in problems_of(error))
            return False

    async def every() -> Sequence[bool]:
        store = open_store(configuration, os.environ)
        try:
            return await asyncio.gather(*(one(file, store) for file in files))
        finally:
            await store.close()

    results = run_until_signalled(every())
    if results is None:
        print_problems(["Interrupted. Run the command again for the rest, or `busway resume` to undo it."])
        return _CANCELLED
    if not yes:
        print_only_shown()
    return 0 if all(results) else 1


def _say(task: str, text: str) -> None:
    typer.echo(printable(f"{task}: {text}"))


def _check(configuration: Configuration, files: Sequence[TaskFile], *, closes: bool) -> None:
    """Raise ConfigError with each reason for which the tasks cannot be paused by an order."""
    way = "use --az, the platform's way"
    problems = []
    missing = store_problem(configuration, os.environ)
    if missing is not None:
        problems.append(Problem("control", f"orders have no place: {missing}", way))
    everyone: list[TaskFile | TapFile] = [*configuration.tasks, *configuration.taps]
    for file in files if closes else ():
        if file.source.hub is not None or not configuration.connections[file.source.connection].is_namespace:
            continue
        if file.source.dead_letter:
            what = f"takes from a dead-letter queue, which has no status of its own: {file.source.entity}"
            problems.append(Problem(file.task, what, way))
        others = [
            each.task
            for each in everyone
            if each.task != file.task
            and each.source.hub is None
            and configuration.connections[each.source.connection].key
            == configuration.connections[file.source.connection].key
            and _entity(each) == _entity(file)
        ]
        if others and not file.source.dead_letter:
            what = f"shares its source with {', '.join(others)}, which would be paused too"
            problems.append(Problem(file.task, what, way))
    if problems:
        raise ConfigError(problems)


def _entity(file: TaskFile | TapFile) -> str:
    source = file.source
    return (source.queue or f"{source.topic}/Subscriptions/{source.subscription}").lower()


def az_commands(files: Iterable[TaskFile], *, is_pause: bool) -> Iterator[str]:
    """Yield for each task the app setting with which the app has no function for it, or the removal of that setting."""
    place = '--resource-group "$GROUP" --name "$APP"'
    for file in files:
        if is_pause:
            yield f"az functionapp config appsettings set {place} --settings {switch_of(file.task)}=true"
        else:
            yield f"az functionapp config appsettings delete {place} --setting-names {switch_of(file.task)}"
