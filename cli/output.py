"""How commands print: results to standard output, problems to standard error."""

import sys
from collections.abc import Iterable
from typing import NoReturn

import typer
from rich.console import Console

# In a CI log or a pipe there is no terminal width to respect.
_LOG_WIDTH = 160


def console() -> Console:
    """Return a console on standard output."""
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _LOG_WIDTH)


def printable(text: str) -> str:
    """Return *text* with characters escaped that a terminal would act on: controls, and marks of writing direction."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else each.encode("unicode_escape").decode() for each in text])


def print_problems(problems: Iterable[object]) -> None:
    """Print each of *problems* to standard error, on a line of its own."""
    for problem in problems:
        typer.echo(str(problem), err=True)


def fail(problems: Iterable[object]) -> NoReturn:
    """Print *problems* to standard error and end the command with exit code 1."""
    print_problems(problems)
    raise typer.Exit(1)


def print_ready(*words: str) -> None:
    """Print the line that the process which started this one waits for."""
    print("ready", *words, flush=True)
