"""`busway send`: send messages by hand."""

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Folder
from shared.errors import ConfigError, Problem

if TYPE_CHECKING:
    from cli.places import Place
    from shared.protocols import Outgoing

_ANSWER_SECONDS = 30.0
# Every number of fewer digits is a long.
_DIGITS = len(str(2**63 - 1))
_INT = 2**31


def send(
    place: Annotated[str, typer.Argument(metavar="CONNECTION/ENTITY", help="A queue, topic or event hub.")],
    bodies: Annotated[list[str], typer.Argument(metavar="BODY...", help="The text of each message.")],
    *,
    identity: Annotated[
        str | None, typer.Option("--id", help="Id of the message; several messages get ID-1, ID-2, …")
    ] = None,
    session: Annotated[str | None, typer.Option(help="Session id of the messages.")] = None,
    key: Annotated[str | None, typer.Option(help="Partition key of the messages.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="An application property: a whole number, or text. Text of digits needs double quotes: 'code=\"7\"'.",
        ),
    ] = None,
    config: Folder = Path("config"),
) -> None:
    """
    Send one message for each BODY, in their order.

    CONNECTION is a connection in connections.yaml, and its app setting an environment variable: NAME with a connection
    string, or NAME__fullyQualifiedNamespace with a host name, for your own Azure identity (`az login`), which needs the
    role Data Sender. `. build/start/settings` sets those of a running `busway start`. Example:

    busway send west/events hello --id a --property colour=red
    """
    try:
        "".join([*bodies, identity or "", session or "", key or "", *(properties or [])]).encode()
    except UnicodeEncodeError as error:  # the shell has given bytes that are not UTF-8
        raise ConfigError([Problem(place, "a body, id or property is not UTF-8", "expected text")]) from error
    properties_by_name = dict(_property(text) for text in properties or [])
    ids: list[str | None] = [identity] * len(bodies)
    if identity is not None and len(bodies) > 1:
        ids = [f"{identity}-{number}" for number in range(1, len(bodies) + 1)]

    from cli.places import check_session, open_place
    from shared.ends.kind import Holds
    from shared.protocols import Outgoing

    with open_place(place, config) as entity:
        if entity.connection.end.holds is Holds.TEXTS:
            if identity is not None or session is not None or key is not None or properties_by_name:
                text = "is a storage queue, whose messages are only texts"
                raise ConfigError([Problem(place, text, "give only bodies")])
            messages = [Outgoing(body.encode(), None, None, None) for body in bodies]
        else:
            check_session(entity, session)
            if session is not None and key not in (None, session):
                hint = "leave out --key: the session is the partition key of its messages"
                raise ConfigError([Problem(place, "a message of a session has no other partition key", hint)])
            if identity is None and not entity.is_hub:
                ids = [str(uuid.uuid4()) for _ in bodies]  # as Microsoft's SDK: a repeated attempt is recognized
            messages = [
                _message(body, name, session, key, properties_by_name) for body, name in zip(bodies, ids, strict=True)
            ]
        asyncio.run(_send(entity, messages, config))
    typer.echo(f"{len(bodies)} sent to {place}")


def _message(
    body: str, identity: str | None, session: str | None, key: str | None, properties: Mapping[str, int | str]
) -> "Outgoing":
    from cli.composed import composed, outgoing
    from shared.amqp.values import int_, long, string

    # A number that fits is an int, as Microsoft's SDK sends it.
    values = {
        name: string(value) if isinstance(value, str) else (int_ if -_INT <= value < _INT else long)(value)
        for name, value in properties.items()
    }
    message = composed(body.encode(), values, message_id=identity, session_id=session, partition_key=key)
    return outgoing(message)


async def _send(place: "Place", messages: "Sequence[Outgoing]", folder: Path) -> None:
    """Send messages as a task does; raises BuswayError, and the error of an SDK."""
    import os
    from dataclasses import replace

    from azure.core.exceptions import AzureError

    from cli.places import lacks_token, line_of
    from shared.assembly.outputs import closing_outputs
    from shared.errors import MessageRejected, TargetRefused, TargetUnavailable
    from shared.tasks.files import load

    alone = replace(load(folder), connections={place.alias: place.connection})
    async with closing_outputs(alone, os.environ) as outputs:
        errors = await outputs[place.alias].send(place.path, messages, timeout_seconds=_ANSWER_SECONDS)
    if any(errors) and None in errors:
        typer.echo(f"{errors.count(None)} of {len(messages)} sent to {place}", err=True)
    for error in filter(None, errors):
        if isinstance(error.__cause__, TimeoutError):
            late = f"no answer in {_ANSWER_SECONDS:.0f} s; whether it has taken the messages is not known"
            raise TargetUnavailable(f"{place}: {late}") from error
        # The SDK says more about a connection than the log of a task, which repeats it, has room for.
        cause = error.__cause__
        if isinstance(cause, AzureError) and (isinstance(error, TargetUnavailable) or lacks_token(cause)):
            raise type(error)(f"{place}: {line_of(cause)}") from error
        if isinstance(error, MessageRejected):
            raise TargetRefused(error.description) from error
        raise error


def _property(text: str) -> tuple[str, int | str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"expected NAME=VALUE, got {text!r}", param_hint="--property")
    if value.startswith('"') and value.endswith('"'):
        try:
            return name, str(json.loads(value))
        except ValueError:
            return name, value
    # A number keeps all that was typed: 007 and what no long holds are text.
    if len(value) < _DIGITS and value.isascii() and value.isdecimal() and str(int(value)) == value:
        return name, int(value)
    return name, value
