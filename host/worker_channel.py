"""The messages between the host and its worker process: pickled objects over a socket pair."""

from collections.abc import Mapping, Sequence
from logging import LogRecord
from pathlib import Path
from typing import NamedTuple

from host.worker import Attempt, Function, Invocation
from shared.errors import Problem


class Start(NamedTuple):
    """Index the app in a folder; log at the host's levels, by logger ("" is the root)."""

    folder: Path
    log_levels: Mapping[str, int]


class Started(NamedTuple):
    """The functions of the app, or why it cannot be indexed."""

    functions: Sequence[Function] = ()
    problems: Sequence[Problem] = ()


class Call(NamedTuple):
    """Run a function once."""

    number: int
    attempt: Attempt


class Answer(NamedTuple):
    """The result of a call."""

    number: int
    invocation: Invocation


class Logged(NamedTuple):
    """A record for the host's log."""

    record: LogRecord
