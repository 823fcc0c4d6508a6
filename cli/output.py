"""How commands print: results to standard output, problems to standard error."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

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
        for line in str(problem).split("\n"):
            print_wrapped(line, err=True)


def print_wrapped(line: str, *, err: bool = False) -> None:
    """Print a line, which may quote a message, broken between words where a terminal ends; a command stays whole."""
    text = printable(line)
    stream = sys.stderr if err else sys.stdout
    width = shutil.get_terminal_size().columns if stream.isatty() else 0
    if width and len(text) > width and not text.lstrip().startswith("az "):
        indent = " " * (len(text) - len(text.lstrip()) + 2)
        text = textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    typer.echo(text, err=err)


def problems_of(error: BuswayError) -> Sequence[object]:
    """Return what is printed of an error, one line each."""
    return error.problems if isinstance(error, ConfigError) else [error]


def print_counts(*counts: tuple[int, str]) -> None:
    """Print each count that is not 0, on a line of its own."""
    for count, what in counts:
        if count:
            typer.echo(f"{count:>8,} {what}")


def print_only_shown() -> None:
    """Print that a command has done nothing, and how it does it."""
    typer.echo("Nothing was changed: --yes does it.", err=True)
