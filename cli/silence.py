"""A word on standard error while a command has printed nothing yet: what it waits for, and for how long."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from shared.errors import ConfigError, Problem

SETTING = "BUSWAY_SILENCE_SECONDS"
FIRST_SECONDS = 2.0
_NEXT_SECONDS = 5.0

_subject = ""


def waits_for(what: str) -> None:
    """Name what the command waits for from now on."""
    global _subject  # noqa: PLW0603 - a process runs one command
    _subject = what


@contextlib.contextmanager
def broken_silence(command: Callable[[], str | None]) -> Iterator[None]:
    """Print after two seconds, and then every five, that *command* waits, until it has printed something itself."""
    first = _seconds()
    streams = sys.stdout, sys.stderr
    is_heard = threading.Event()
    sys.stdout, sys.stderr = (_Listener(stream, is_heard) for stream in streams)
    threading.Thread(target=_speak, args=(command, streams[1], is_heard, first), daemon=True).start()
    try:
        yield
    finally:
        is_heard.set()
        sys.stdout, sys.stderr = streams


def _seconds() -> float:
    text = os.environ.get(SETTING)
    try:
        return FIRST_SECONDS if text is None else max(float(text), 0.0)
    except ValueError as error:
        hint = "expected the seconds of silence after which a command says what it waits for"
        raise ConfigError([Problem(SETTING, f"got {text!r}", hint)]) from error


class _Listener:
    """A stream that notes that something was written."""

    def __init__(self, stream: TextIO, is_heard: threading.Event) -> None:
        self._stream = stream
        self._is_heard = is_heard

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._is_heard.set()
        return self._stream.write(text)


def _speak(command: Callable[[], str | None], stream: TextIO, is_heard: threading.Event, seconds: float) -> None:
    started = time.monotonic()
    while not is_heard.wait(seconds):
        # The command may have ended with its stream.
        with contextlib.suppress(ValueError, OSError):
            state = f"waits for {_subject}" if _subject else "is at work"
            stream.write(f"busway {command() or ''}: {state}, {time.monotonic() - started:.0f} s\n")
            stream.flush()
        seconds = _NEXT_SECONDS
