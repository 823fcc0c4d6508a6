"""How commands print: results to standard output, problems to standard error."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

import typer

from shared.errors import BuswayError, ConfigError
from shared.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

# In a CI log or a pipe there is no terminal width to respect.
_LOG_WIDTH = 160


def console() -> "Console":
    """Return a console on standard output."""
    from rich.console import Console

    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _LOG_WIDTH)


def print_problems(problems: Iterable[object]) -> None:
    """Print each of *problems* to standard error, on a line of its own."""
    for problem in problems:
        # What it quotes may come from a message.
        typer.echo("\n".join(map(printable, str(problem).split("\n"))), err=True)


def problems_of(error: BuswayError) -> Sequence[object]:
    """Return what is printed of an error, one line each."""
    return error.problems if isinstance(error, ConfigError) else [error]


def fail(problems: Iterable[object]) -> NoReturn:
    """Print *problems* to standard error and end the command with exit code 1."""
    print_problems(problems)
    raise typer.Exit(1)
