"""What is printed about the messages that a command selects."""

from collections import Counter
from collections.abc import Mapping

import typer

from cli.dead import listing
from cli.dead.listing import messages
from shared.printable import printable
from shared.resend.inventory import Inventory

_LEFT_SHOWN = 10


def announce(wanted: Inventory, verb: str) -> bool:
    """Print what is selected; return whether there is anything to do."""
    print_unevaluated(wanted.unevaluated)
    for reason, count in wanted.unreachable.items():
        typer.echo(f"{count:>8,} left: {printable(reason)}")
    if not wanted.sessions:
        typer.echo(f"{wanted.groups.place}: nothing to {verb}")
        return False
    typer.echo("\n".join(listing.lines(wanted.groups)))
    return True


def print_left(left: Mapping[str, str]) -> None:
    """Print how many messages were left for each reason, with the first sequence numbers."""
    for reason, count in Counter(left.values()).most_common():
        numbers = [key.partition("/")[0] for key, each in left.items() if each == reason]
        more = ", …" if len(numbers) > _LEFT_SHOWN else ""
        shown = ", ".join(numbers[:_LEFT_SHOWN]) + more
        typer.echo(f"{count:>8,} left: {printable(reason)} (sequence number {shown})")


def print_unevaluated(count: int) -> None:
    """Print for how many messages `--where` could not be evaluated."""
    if count:
        typer.echo(f"{messages(count)} not selected: --where could not be evaluated", err=True)
