"""
How commands print: results to standard output, problems to standard error.

While a command has printed nothing yet, a word says there what it waits for, and for how long.
"""

import contextlib
import os
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import typer

from shared.errors import BuswayError, ConfigError, Problem
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


SETTING = "BUSWAY_SILENCE_SECONDS"
FIRST_SECONDS = 2.0
_NEXT_SECONDS = 5.0
_LOOK_SECONDS = 0.25


class _Silence:
    """What the command waits for, and since when it has said nothing; None: it has spoken, and waits for nothing."""

    subject = ""
    since: float | None = None


def waits_for(what: str) -> None:
    """Name what the command waits for from now on."""
    _Silence.subject = what
    if _Silence.since is None:
        _Silence.since = time.monotonic()


@contextlib.contextmanager
def broken_silence(command: Callable[[], str | None]) -> Iterator[None]:
    """
    Print after two seconds, and then every five, that *command* waits, until it has printed something itself.

    After that it does so again whenever the command `waits_for` something.
    """
    text = os.environ.get(SETTING)
    try:
        first = FIRST_SECONDS if text is None else max(float(text), 0.0)
    except ValueError as error:
        hint = "expected the seconds of silence after which a command says what it waits for"
        raise ConfigError([Problem(SETTING, f"got {text!r}", hint)]) from error
    streams = sys.stdout, sys.stderr
    has_ended = threading.Event()
    _Silence.subject, _Silence.since = "", time.monotonic()
    sys.stdout, sys.stderr = map(_Listener, streams)
    threading.Thread(target=_speak, args=(command, streams[1], has_ended, first), daemon=True).start()
    try:
        yield
    finally:
        has_ended.set()
        sys.stdout, sys.stderr = streams


class _Listener:
    """A stream that notes that something was written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if text.strip():
            _Silence.since = None
        with _writable():
            return self._stream.write(text)

    def flush(self) -> None:
        with _writable():
            self._stream.flush()


@contextlib.contextmanager
def _writable() -> Iterator[None]:
    """Raise ConfigError if the output cannot be written, such as to a full disk; a pipe that was closed ends here."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError([Problem("the output", f"cannot be written: {error.strerror}")]) from error


def _speak(command: Callable[[], str | None], stream: TextIO, has_ended: threading.Event, first: float) -> None:
    due = first
    while not has_ended.wait(min(max(first, 0.02), _LOOK_SECONDS)):
        since = _Silence.since
        quiet = 0.0 if since is None else time.monotonic() - since
        if since is None:
            due = first
        elif quiet >= due:
            due = quiet + _NEXT_SECONDS
            # The command may have ended with its stream.
            with contextlib.suppress(ValueError, OSError):
                state = f"waits for {_Silence.subject}" if _Silence.subject else "is at work"
                stream.write(f"busway {command() or ''}: {state}, {quiet:.0f} s\n")
                stream.flush()
