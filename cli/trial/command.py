"""`busway try`: what a task would make of messages, without sending anything."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.output import tell
from cli.places import Folder
from cli.trial.line import NoOutput, Trial, tried
from cli.trial.peeking import peeked
from cli.trial.recorded import FORMAT, Recorded, recorded, save
from cli.trial.show import document, lines, summary
from shared.clock import Clock, SystemClock
from shared.config.assembly import assemble
from shared.config.files import Configuration, load
from shared.config.models import DEFAULT_CONSUMER_GROUP, TaskFile
from shared.errors import BuswayError, ConfigError, MessageRejected, Problem
from shared.line.pipeline import Task
from shared.message.message import Message, Origin
from shared.protocols import Outcome

_HUB_PARTITION = "0"

HELP = f"""
Show what a task would make of messages, and where each would go: nothing is sent, received, journalled or kept.

The messages are those that wait in the task's source (`--peek`: the first N of a queue or subscription, the last N of a
hub), or those in a file. They pass the line of the task, which is the app's own: for each step it is shown what would
change, with `-` what was there and `+` what would be; then where the message would go, or why it would not. What is in
messages is shown on this terminal, and written nowhere but to the file of `--save`.

The source's app setting, and those of keys and stores, are taken from the environment. Not seen: what the target would
say, such as that a message is too large for it.

Exit code 0 if all would be sent or withheld, 1 if one would be rejected, 2 if it could not be tried. Examples:

    busway try orders --peek 10 --save orders.jsonl

    busway try orders --messages orders.jsonl

{FORMAT}"""


def try_task(
    task: Annotated[str, typer.Argument(help="Name of the task.")],
    *,
    messages: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Try the messages in a file, one JSON object a line.")
    ] = None,
    peek: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10_000, help="Try N messages of the task's source.")
    ] = None,
    consumer_group: Annotated[
        str, typer.Option(help="Group to read a hub as; not one that an app reads as the owner of its partitions.")
    ] = DEFAULT_CONSUMER_GROUP,
    save_as: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Keep what was peeked, to try it again.")
    ] = None,
    with_body: Annotated[bool, typer.Option("--body", help="Show each body as it came, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line for each message.")] = False,
    config: Folder = Path("config"),
) -> None:
    """Show what a task would make of messages; HELP is its text."""
    if (messages is None) == (peek is None):
        raise typer.BadParameter("expected one of --messages and --peek", param_hint="--messages")
    if save_as is not None and peek is None:
        raise typer.BadParameter("keeps what was peeked, expected --peek", param_hint="--save")
    try:
        trials = asyncio.run(_tried(task, messages, peek, config, consumer_group=consumer_group, save_as=save_as))
    except ConfigError as error:
        tell(error.problems)
        raise typer.Exit(2) from error
    except BuswayError as error:
        tell([error])
        raise typer.Exit(2) from error
    for number, trial in enumerate(trials, 1):
        if as_json:
            typer.echo(json.dumps(document(trial, task), ensure_ascii=False))
        else:
            typer.echo("\n".join([*lines(trial, number, len(trials), with_body=with_body), ""]))
    if not as_json:
        typer.echo(summary(trials))
    if any(end.outcome is Outcome.REJECTED for trial in trials for end in trial.ends):
        raise typer.Exit(1)


async def _tried(
    name: str,
    messages: Path | None,
    peek: int | None,
    folder: Path,
    *,
    consumer_group: str,
    save_as: Path | None,
) -> list[Trial]:
    asyncio.get_running_loop().set_exception_handler(_without_open_clients)
    clock, settings = SystemClock(), os.environ
    configuration = load(folder)
    file = _task_named(name, configuration)
    task = _assembled(file, configuration, settings, clock)
    if messages is not None:
        found = recorded(messages, clock.now())
    else:
        found = await peeked(configuration, file, peek or 0, settings, consumer_group=consumer_group)
    if save_as is not None:
        save(save_as, found)
    if not found:
        raise ConfigError([Problem(f"{task.origin.site}/{task.origin.entity}", "holds no message to be tried")])
    verbs = [step.verb() for step in file.editors]
    return await tried(task, verbs, _batches(found, file, task.origin), clock)


def _without_open_clients(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say nothing of clients that end with this process: editors keep theirs for as long as an app runs."""
    if not str(context.get("message")).startswith("Unclosed "):
        loop.default_exception_handler(context)


def _task_named(name: str, configuration: Configuration) -> TaskFile:
    for file in configuration.tasks:
        if file.task == name:
            return file
    names = ", ".join(file.task for file in configuration.tasks)
    raise ConfigError([Problem(name, "is no task", f"expected one of {names}")])


def _assembled(file: TaskFile, configuration: Configuration, settings: Mapping[str, str], clock: Clock) -> Task:
    outputs = {alias: NoOutput() for alias in configuration.connections}
    alone = replace(configuration, tasks=[file], taps=())
    (task,) = assemble(alone, outputs, settings=settings, clock=clock, rehearsal=True)
    return task


def _batches(found: Sequence[Recorded], file: TaskFile, origin: Origin) -> list[tuple[str | None, Sequence[bytes]]]:
    """Return what would be delivered together: messages of one partition, and of one session where there are any."""
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
