"""The messages between the host and its worker process: pickled objects over a socket pair."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import LogRecord
from pathlib import Path

from host.worker import Attempt, Function, Invocation
from shared.errors import Problem


@dataclass(frozen=True, slots=True)
class Start:
    """Index the app in a folder; log at the host's levels, by logger ("" is the root)."""

    folder: Path
    log_levels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Started:
    """The functions of the app, or why it cannot be indexed."""

    functions: Sequence[Function] = ()
    problems: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """Run a function once."""

    number: int
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call."""

    number: int
    invocation: Invocation


@dataclass(frozen=True, slots=True)
class Logged:
    """A record for the host's log."""

    record: LogRecord
