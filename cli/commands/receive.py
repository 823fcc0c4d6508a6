"""`busway receive`: print what has arrived."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder


def receive(
    place: Annotated[
        str,
        typer.Argument(
            metavar="CONNECTION/ENTITY",
            help="A queue, TOPIC/Subscriptions/NAME, either with /$DeadLetterQueue, an event hub or a storage queue.",
        ),
    ],
    *,
    session: Annotated[
        str | None, typer.Option(help="Receive this session; required if the entity has sessions.")
    ] = None,
    peek: Annotated[bool, typer.Option("--peek", help="Leave the messages in the entity.")] = False,
    dead_letter: Annotated[
        str | None, typer.Option(metavar="REASON", help="Dead-letter the messages instead of completing them.")
    ] = None,
    position: Annotated[
        bool, typer.Option("--position", help="Also print the sequence number, offset and enqueued time of events.")
    ] = False,
    wait: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the first message.")] = 10.0,
    config: Folder = Path("config"),
) -> None:
    """
    Receive and complete all messages of an entity, with Microsoft's SDK, and print one line for each.

    A line is the body, then the properties. For an event hub, all events that it holds are printed. App settings are
    those of `busway send`; an Azure identity needs the role Data Receiver. Example:

    busway receive east/events/Subscriptions/application
    """
    from cli.places import open_place
    from cli.queue_texts import text_lines
    from cli.sdk_receive import lines
    from shared.ends.kind import Holds

    found = 0
    with open_place(place, config) as entity:
        found_lines = (
            text_lines(entity, wait, is_peek=peek)
            if entity.connection.end.holds is Holds.TEXTS
            else lines(entity, session, wait, dead_letter, is_peek=peek, with_position=position)
        )
        for line in found_lines:
            typer.echo(line)
            found += 1
    if not found:
        typer.echo(f"nothing in {place}")
