"""How the command speaks: results to standard output, problems to standard error."""

import sys
from collections.abc import Iterable
from typing import NoReturn

import typer
from rich.console import Console

# Where there is no terminal to ask (a CI log, a pipe), tables get the width they need.
_LOG_WIDTH = 160


def console() -> Console:
    """Return a console on standard output."""
    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else _LOG_WIDTH)


def tell(problems: Iterable[object]) -> None:
    """Print each of *problems* on a line of its own."""
    for problem in problems:
        typer.echo(str(problem), err=True)


def fail(problems: Iterable[object]) -> NoReturn:
    """Print each of *problems* on a line of its own and end with exit code 1."""
    tell(problems)
    raise typer.Exit(1)


def ready(*words: str) -> None:
    """Tell whoever started this process that it is ready."""
    print("ready", *words, flush=True)
