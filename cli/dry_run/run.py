"""The run of `busway try`: load the task, get the messages, try them, print the result."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from cli.dry_run.line import NoOutput, Result, try_batches
from cli.dry_run.peeking import peek_messages
from cli.dry_run.recorded import Recorded, read_messages, save
from cli.dry_run.show import document, lines, summary
from cli.output import print_problems
from shared.clock import Clock, SystemClock
from shared.config.assembly import assemble
from shared.config.files import Configuration, load
from shared.config.models import TaskFile
from shared.errors import BuswayError, ConfigError, MessageRejected, Problem
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.printable import json_line
from shared.protocols import Outcome

_HUB_PARTITION = "0"
_ONE_REJECTED, _NOT_TRIED = 1, 2


def try_and_print(
    name: str,
    messages: Path | None,
    peek: int | None,
    folder: Path,
    *,
    consumer_group: str,
    save_as: Path | None,
    with_body: bool,
    as_json: bool,
) -> int:
    """Print what the task *name* would do with each message, and return the exit code."""
    try:
        results = asyncio.run(_tried(name, messages, peek, folder, consumer_group=consumer_group, save_as=save_as))
    except ConfigError as error:
        print_problems(error.problems)
        return _NOT_TRIED
    except BuswayError as error:
        print_problems([error])
        return _NOT_TRIED
    for number, result in enumerate(results, 1):
        if as_json:
            typer.echo(json_line(document(result, name)))
        else:
            typer.echo("\n".join([*lines(result, number, len(results), with_body=with_body), ""]))
    if not as_json:
        typer.echo(summary(results))
    return _ONE_REJECTED if any(end.outcome is Outcome.REJECTED for result in results for end in result.ends) else 0


async def _tried(
    name: str,
    messages: Path | None,
    peek: int | None,
    folder: Path,
    *,
    consumer_group: str,
    save_as: Path | None,
) -> list[Result]:
    asyncio.get_running_loop().set_exception_handler(_without_open_clients)
    clock, settings = SystemClock(), os.environ
    configuration = load(folder)
    file = _task_named(name, configuration)
    task = _assembled(file, configuration, settings, clock)
    if messages is not None:
        found = read_messages(messages, clock.now())
    else:
        found = await peek_messages(configuration, file, peek or 0, settings, consumer_group=consumer_group)
    if save_as is not None:
        save(save_as, found)
    if not found:
        raise ConfigError([Problem(f"{task.origin.site}/{task.origin.entity}", "has no messages to try")])
    return await try_batches(task, _batches(found, file, task.origin), clock)


def _without_open_clients(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore warnings about unclosed clients: editors keep theirs until the process ends."""
    if not str(context.get("message")).startswith("Unclosed "):
        loop.default_exception_handler(context)


def _task_named(name: str, configuration: Configuration) -> TaskFile:
    for file in configuration.tasks:
        if file.task == name:
            return file
    names = ", ".join(file.task for file in configuration.tasks)
    raise ConfigError([Problem(name, "unknown task", f"expected one of {names}")])


def _assembled(file: TaskFile, configuration: Configuration, settings: Mapping[str, str], clock: Clock) -> Task:
    outputs = {alias: NoOutput() for alias in configuration.connections}
    alone = replace(configuration, tasks=[file], taps=())
    (task,) = assemble(alone, outputs, settings=settings, clock=clock, dry_run=True)
    return task


def _batches(found: Sequence[Recorded], file: TaskFile, origin: Origin) -> list[tuple[str | None, Sequence[bytes]]]:
    """Return the messages in batches as the host would deliver them: by partition, or by session."""
    batches: dict[tuple[str | None, str | None], list[bytes]] = {}
    for content, partition in found:
        where = None if file.source.hub is None else partition or _HUB_PARTITION
        session = _session(content, origin) if file.source.sessions else None
        batches.setdefault((where, session), []).append(content)
    return [(partition, contents) for (partition, _), contents in batches.items()]


def _session(content: bytes, origin: Origin) -> str | None:
    try:
        return Message.received(content, origin).session_id
    except MessageRejected:
        return None
