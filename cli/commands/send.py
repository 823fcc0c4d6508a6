"""`busway send`: send messages by hand."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder
from shared.errors import ConfigError, Problem

# Every number of fewer digits is a long.
_DIGITS = len(str(2**63 - 1))


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
    Send one message for each BODY, all in one batch, with Microsoft's SDK.

    CONNECTION is a connection in connections.yaml, and its app setting an environment variable: NAME with a connection
    string, or NAME__fullyQualifiedNamespace with a host name, for your own Azure identity (`az login`), which needs the
    role Data Sender. `. build/start/settings` sets those of a running `busway start`. Example:

    busway send west/events hello --id a --property colour=red
    """
    given = [*bodies, identity or "", session or "", key or "", *(properties or [])]
    if not all(map(_is_unicode, given)):
        raise ConfigError([Problem(place, "a body, id or property is not UTF-8", "expected text")])
    properties_by_name = dict(_property(text) for text in properties or [])
    ids = [identity] * len(bodies)
    if identity is not None and len(bodies) > 1:
        ids = [f"{identity}-{number}" for number in range(1, len(bodies) + 1)]

    from cli.places import check_session, open_place
    from shared.ends.kind import Holds

    with open_place(place, config) as entity:
        if entity.connection.end.holds is Holds.TEXTS:
            if identity is not None or session is not None or key is not None or properties_by_name:
                text = "is a storage queue, whose messages are only texts"
                raise ConfigError([Problem(place, text, "give only bodies")])
            from cli.queue_texts import send_texts

            send_texts(entity, bodies)
        else:
            from cli import sdk_send

            check_session(entity, session)
            if session is not None and key not in (None, session):
                hint = "leave out --key: the session is the partition key of its messages"
                raise ConfigError([Problem(place, "a message of a session has no other partition key", hint)])
            sdk_send.send(entity, [*zip(bodies, ids, strict=True)], properties_by_name, session, key)
    typer.echo(f"{len(bodies)} sent to {place}")


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


def _is_unicode(text: str) -> bool:
    """Return whether the shell has given text, and not bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
