"""What is printed about the messages that a command selects, and about the run over them."""

from collections.abc import Iterable

import typer

from cli.dead import listing
from cli.dead.listing import messages
from shared.errors import BuswayError
from shared.printable import printable
from shared.resend.inventory import Inventory
from shared.resend.run import Result

_LEFT_SHOWN = 10


def announce(found: Inventory, verb: str) -> bool:
    """Print what is selected; return whether there is anything to do."""
    print_unevaluated(found.unevaluated)
    for reason, count in found.unreachable.items():
        typer.echo(f"{count:>8,} left: {printable(reason)}")
    if not found.sessions:
        typer.echo(f"{found.groups.place}: nothing to {verb}")
        return False
    typer.echo("\n".join(listing.lines(found.groups)))
    return True


def print_rest(result: Result) -> None:
    """Print how many messages were not done: gone, or left for each reason."""
    if result.gone:
        typer.echo(f"{result.gone:>8,} gone: another receiver has taken them meanwhile")
    print_left(result.left.items())


def print_left(left: Iterable[tuple[str, str]]) -> None:
    """Print how many messages were left for each reason, and the first of them; *left* are their keys and reasons."""
    numbers: dict[str, list[str]] = {}
    for key, reason in left:
        numbers.setdefault(reason, []).append(key.partition("/")[0])
    for reason, some in sorted(numbers.items(), key=lambda each: -len(each[1])):
        more = ", …" if len(some) > _LEFT_SHOWN else ""
        shown = ", ".join(some[:_LEFT_SHOWN]) + more
        typer.echo(f"{len(some):>8,} left: {printable(reason)} (sequence number {shown})")


def print_end(error: BuswayError | None, *, is_stopped: bool) -> None:
    """Print why a run has ended before its messages were done, if it has."""
    if error is not None:
        typer.echo(f"ended early: {printable(str(error))}", err=True)
    if is_stopped:
        typer.echo("stopped: locks are released; run the command again to continue", err=True)


def print_unevaluated(count: int) -> None:
    """Print for how many messages `--where` could not be evaluated."""
    if count:
        typer.echo(f"{messages(count)} not selected: --where could not be evaluated", err=True)
