"""Runs `busway pause`, `busway drain` and `busway resume`."""

import asyncio
import getpass
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from cli.output import print_problems
from cli.pause.entity import Entity
from cli.pause.pausing import Steering, Who
from cli.pause.platform import az_commands
from cli.stack import run_until_signalled
from cli.topology.sites import Access, errors_of
from shared.config.files import Configuration, load
from shared.config.journal_models import TapFile
from shared.config.models import TaskFile
from shared.config.status_assembly import open_store, store_problem
from shared.errors import BuswayError, ConfigError, Problem
from shared.printable import printable

type _Work = Callable[[Steering], Awaitable[bool]]

_CANCELLED = 130
_FAILED, _INVALID = 1, 2


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    folder: Path
    tasks: Sequence[str]
    addresses: Sequence[str]
    authority: Path | None
    is_az: bool
    is_dry: bool


def pause_tasks(request: Request, reason: str | None, by: str | None, seconds: float) -> int:
    """Pause the tasks side by side, print the steps; return the exit code."""
    who = Who(by or getpass.getuser(), reason)

    async def pause(steering: Steering) -> bool:
        if request.is_dry:
            await steering.show_pause()
            return True
        return not await steering.pause(who, seconds)

    return _run(request, pause, is_pause=True)


def resume_tasks(request: Request) -> int:
    """Resume the tasks, as `pause_tasks`."""

    async def resume(steering: Steering) -> bool:
        await (steering.show_resume() if request.is_dry else steering.resume())
        return True

    return _run(request, resume, is_pause=False)


def _run(request: Request, work: _Work, *, is_pause: bool) -> int:
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    try:
        configuration = load(request.folder)
        files = _files(configuration, request.tasks)
        if request.is_az:
            for command in az_commands(files, is_pause=is_pause):
                typer.echo(command)
            return 0
        access = Access.of(request.addresses, request.authority, configuration.connections)
        _check(configuration, files)
    except ConfigError as error:
        print_problems(error.problems)
        return _INVALID
    results = run_until_signalled(_all(configuration, files, access, work))
    if results is None:
        print_problems(["Interrupted. Run the command again for the rest, or `busway resume` to undo it."])
        return _CANCELLED
    return 0 if all(results) else _FAILED


async def _all(configuration: Configuration, files: Iterable[TaskFile], access: Access, work: _Work) -> Sequence[bool]:
    store = open_store(configuration, os.environ)

    async def one(file: TaskFile) -> bool:
        source = file.source
        connection = configuration.connections[source.connection]
        entity = Entity(source, connection, access) if source.hub is None and connection.is_namespace else None
        try:
            return await work(Steering(file.task, store, entity, lambda text: _say(file.task, text)))
        except BuswayError as error:
            print_problems(f"{file.task}: {each}" for each in errors_of(error))
            return False

    try:
        return await asyncio.gather(*(one(file) for file in files))
    finally:
        await store.close()


def _say(task: str, text: str) -> None:
    typer.echo(printable(f"{task}: {text}"))


def _files(configuration: Configuration, names: Sequence[str]) -> list[TaskFile]:
    known = {each.task: each for each in configuration.tasks}
    unknown = [name for name in names if name not in known]
    if unknown:
        hint = f"the tasks are {', '.join(known)}"
        raise ConfigError([Problem(name, "is not a task of this configuration", hint) for name in unknown])
    return [known[name] for name in dict.fromkeys(names)]


def _check(configuration: Configuration, files: Iterable[TaskFile]) -> None:
    """Raise ConfigError with each reason for which the tasks cannot be paused by an order."""
    way = "use --az, the platform's way"
    problems = []
    missing = store_problem(configuration, os.environ)
    if missing is not None:
        problems.append(Problem("control", f"orders have no place: {missing}", way))
    everyone: list[TaskFile | TapFile] = [*configuration.tasks, *configuration.taps]
    for file in files:
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
