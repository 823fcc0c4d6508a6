"""`busway try`: what a task would do with messages, without sending any."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Folder

if TYPE_CHECKING:
    from cli.dry_run.line import Result

_DEFAULT_CONSUMER_GROUP = "$Default"


def try_task(
    task: Annotated[str, typer.Argument(help="Name of the task.")],
    *,
    messages: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Try the messages in a file, one JSON object per line.")
    ] = None,
    peek: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10_000, help="Try N messages in the task's source.")
    ] = None,
    consumer_group: Annotated[
        str,
        typer.Option(
            help="Consumer group for reading an event hub; choose one that no app uses with partition ownership."
        ),
    ] = _DEFAULT_CONSUMER_GROUP,
    save_as: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="With --peek: also write the messages to FILE, for --messages."),
    ] = None,
    with_body: Annotated[bool, typer.Option("--body", help="Also show each body as it was received.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per message, one per line.")] = False,
    config: Folder = Path("config"),
) -> None:
    """
    Show what a task would do with messages and where it would send each; nothing is sent, received or stored.

    The messages come from the task's source (`--peek`: the first N of a queue or subscription, the last N of an event
    hub) or from a file, and pass through the task's own editors and routes. For each step the output shows what would
    change: `-` before, `+` after. Then it shows where the message would be sent, or why it would not. Messages appear
    only on this terminal and in the file of `--save`.

    The app settings of the source, of keys and of stores must be environment variables. The command does not check
    whether the target would refuse a message, for example because it is too large.

    Exit code 0: every message would be sent or withheld. 1: at least one would be rejected. 2: the messages could not
    be tried. Examples:

        busway try orders --peek 10 --save orders.jsonl

        busway try orders --messages orders.jsonl

    A line of FILE is a JSON object, with either

    - `raw`: an encoded AMQP message in Base64, as `--save` writes it, and for an event its `partition`; or
    - `body`: text, or any JSON value, which is sent as JSON; or `body_base64` for bytes;
    - `properties`: application properties by name. A JSON scalar (null, true, 7, 1.5, "text") is sent as it is; other
      types are named, `{"type": "datetime", "value": "2026-01-31T12:00:00Z"}`: bool, byte, sbyte, char, short, ushort,
      int, uint, long, ulong, float, double, decimal ("12.50"), guid, string, uri, datetime and datetimeoffset (ISO
      8601), timespan (seconds);
    - `message_id`, `session_id`, `partition_key`, `subject`, `content_type`, `content_encoding`, `correlation_id`,
      `to`, `reply_to`: text; `time_to_live`: milliseconds;
    - `partition`, `sequence_number` and `enqueued_time` (milliseconds since 1970 UTC), which a service would assign;
      the defaults are the number of the line and the current time.
    """
    if (messages is None) == (peek is None):
        raise typer.BadParameter("choose either --messages or --peek", param_hint="--messages")
    if save_as is not None and peek is None:
        raise typer.BadParameter("needs --peek, whose messages it writes to the file", param_hint="--save")

    from cli.dry_run.show import document, lines, summary
    from shared.printable import json_line
    from shared.protocols import Outcome

    results = asyncio.run(_tried(task, messages, peek, config, consumer_group=consumer_group, save_as=save_as))
    for number, result in enumerate(results, 1):
        if as_json:
            typer.echo(json_line(document(result, task)))
        else:
            typer.echo("\n".join([*lines(result, number, len(results), with_body=with_body), ""]))
    if not as_json:
        typer.echo(summary(results))
    if any(end.outcome is Outcome.REJECTED for result in results for end in result.ends):
        raise typer.Exit(1)


async def _tried(
    name: str, messages: Path | None, peek: int | None, folder: Path, *, consumer_group: str, save_as: Path | None
) -> "list[Result]":
    import os

    from cli.dry_run.line import batches_of, dry_task, try_batches
    from cli.dry_run.messages import read_messages, save, source_messages
    from cli.places import single_task
    from shared.clock import SystemClock
    from shared.errors import ConfigError, Problem
    from shared.tasks.files import load

    asyncio.get_running_loop().set_exception_handler(_without_open_clients)
    clock, configuration = SystemClock(), load(folder)
    file = single_task(name, configuration)
    task = dry_task(file, configuration, os.environ, clock)
    if messages is not None:
        found = read_messages(messages, clock.now())
    else:
        found = await source_messages(configuration, file, peek or 0, os.environ, consumer_group=consumer_group)
    if save_as is not None:
        save(save_as, found)
    if not found:
        raise ConfigError([Problem(f"{task.origin.site}/{task.origin.entity}", "has no messages to try")])
    return await try_batches(task, batches_of(found, file, task.origin), clock)


def _without_open_clients(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore warnings about unclosed clients: editors keep theirs until the process ends."""
    if not str(context.get("message")).startswith("Unclosed "):
        loop.default_exception_handler(context)
