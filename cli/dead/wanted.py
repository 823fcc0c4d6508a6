"""The messages that a command selects, found by peeking, and what is printed about them."""

import contextlib
import os
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import typer

from cli.dead.delivery import Routing
from cli.dead.listing import Groups, messages
from cli.dead.peeking import peeked
from cli.dead.places import Destination, Place
from cli.dead.selecting import Selection
from shared.printable import printable

_LEFT_SHOWN = 10


class Wanted(NamedTuple):
    """The selected messages of an entity, and what keeps others from being selected."""

    sessions: dict[str, str | None]
    """The session of each by its key, in the order of the entity."""
    groups: Groups
    destinations: Counter[str]
    unreachable: Counter[str]
    """Messages that cannot be received or read, by the reason."""
    unevaluated: int


async def wanted_of(place: Place, selection: Selection, routing: Routing, keys: set[str] | None = None) -> Wanted:
    """Peek at *place* and return the selected messages; their content is not kept."""
    found = Wanted({}, Groups(place, datetime.now(UTC)), Counter(), Counter(), 0)
    async with contextlib.aclosing(peeked(place, os.environ)) as pages:
        async for some in pages:
            for letter, each in some:
                if (keys is not None and letter.key not in keys) or not selection.takes(letter):
                    continue
                if letter.key is None:
                    found.unreachable["cannot be read: its sections are not AMQP"] += 1
                    continue
                if not each.is_active:
                    found.unreachable["is deferred or scheduled, and is not delivered to a receiver"] += 1
                    continue
                destination = routing(letter)
                if isinstance(destination, Destination):
                    found.destinations[str(destination)] += 1
                elif destination:
                    found.unreachable[destination] += 1
                    continue
                found.sessions[letter.key] = letter.session_id
                found.groups.add(letter)
            if selection.is_complete:
                break
    print_unevaluated(selection)
    return found._replace(unevaluated=selection.unevaluated)


def announce(wanted: Wanted, verb: str) -> bool:
    """Print what is selected; return whether there is anything to do."""
    for reason, count in wanted.unreachable.items():
        typer.echo(f"{count:>8,} left: {printable(reason)}")
    if not wanted.sessions:
        typer.echo(f"{wanted.groups.place}: nothing to {verb}")
        return False
    typer.echo("\n".join(wanted.groups.lines()))
    return True


def print_left(left: Mapping[str, str]) -> None:
    """Print how many messages were left for each reason, with the first sequence numbers."""
    for reason, count in Counter(left.values()).most_common():
        numbers = [key.partition("/")[0] for key, each in left.items() if each == reason]
        more = ", …" if len(numbers) > _LEFT_SHOWN else ""
        shown = ", ".join(numbers[:_LEFT_SHOWN]) + more
        typer.echo(f"{count:>8,} left: {printable(reason)} (sequence number {shown})")


def print_unevaluated(selection: Selection) -> None:
    """Print for how many messages `--where` could not be evaluated."""
    if selection.unevaluated:
        text = f"{messages(selection.unevaluated)} not selected: --where could not be evaluated"
        typer.echo(text, err=True)
