"""`busway receive`: print what has arrived."""

import asyncio
import sys
from collections.abc import Sequence
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
    Receive and complete all messages of an entity, and print one line for each; `busway messages list` leaves them.

    A line is the body, then the properties; what is not text or a number has its type behind it, and bytes are
    hexadecimal digits. Only what was printed is completed. For an event hub, all events that it holds are printed. App
    settings are those of `busway send`; an Azure identity needs the role Data Receiver. Example:

    busway receive east/events/Subscriptions/application
    """
    from cli.places import check_session, open_place
    from shared.ends.kind import Holds

    with open_place(place, config) as entity:
        check_session(entity, session)
        holds, found = entity.connection.end.holds, 0
        if holds in (Holds.TEXTS, Holds.RECORDS):
            from cli.kafka_receive import records
            from cli.queue_texts import text_lines

            for line in text_lines(entity, wait) if holds is Holds.TEXTS else records(entity, wait):
                typer.echo(line)
                found += 1
        elif entity.is_hub:
            from cli.hub_reader import receive_events

            found = asyncio.run(receive_events(entity, wait, _show, with_position=position))
        else:
            from cli import bus_receive

            found = asyncio.run(bus_receive.receive(entity, session, wait, dead_letter, _show))
    if not found:
        typer.echo(f"nothing in {place}")


def _show(lines: Sequence[str]) -> None:
    typer.echo("\n".join(lines))
    # What is completed next must not wait in a buffer.
    sys.stdout.flush()
