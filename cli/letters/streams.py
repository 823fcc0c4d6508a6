"""What is listed of an entity that keeps its messages until they are old, or that has no peek of its own."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import typer

from cli.places import open_place
from shared.ends.kind import Holds
from shared.tasks.files import Configuration

_WAIT_SECONDS = 10.0


def is_stream(text: str, configuration: Configuration) -> bool:
    """Return whether CONNECTION/ENTITY is an event hub, a storage queue or a Kafka topic."""
    alias, slash, _ = text.partition("/")
    connection = configuration.connections.get(alias)
    return bool(slash) and connection is not None and connection.end.holds is not Holds.MESSAGES


def print_stream(text: str, folder: Path, *, with_bodies: bool) -> None:
    """Print how many messages an entity has, or each of them; nothing is received or committed."""
    # Each SDK takes long to import, and an entity needs only one.
    with open_place(text, folder) as place:
        if place.is_hub:
            from cli.hub_reader import partition_lines, receive_events

            def show(lines: Iterable[str]) -> None:
                typer.echo("\n".join(lines))

            if with_bodies:
                asyncio.run(receive_events(place, _WAIT_SECONDS, show, with_position=True))
            else:
                show([f"{place}: an event hub", *asyncio.run(partition_lines(place))])
            return
        from cli.kafka_receive import records
        from cli.queue_texts import MOST_PEEKED, peeked_texts

        is_queue = place.connection.end.holds is Holds.TEXTS
        found: Iterable[str] = peeked_texts(place) if is_queue else records(place, _WAIT_SECONDS)
        count = 0
        for line in found:
            count += 1
            if with_bodies:
                typer.echo(line)
        if not with_bodies:
            limit = ", of which only the first can be seen" if count == MOST_PEEKED else ""
            typer.echo(f"{place}: {count:,} messages{limit}")
