"""The messages between the host and its worker process: pickled objects over a socket pair."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from logging import LogRecord
from pathlib import Path

from host.protos import TypedData
from host.worker import Function, Invocation
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
    """Run a function once; the invocation's id is the same in all tries of a retry policy."""

    number: int
    function: Function
    data: TypedData
    trigger_metadata: Mapping[str, TypedData]
    invocation_id: str
    retry_count: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call."""

    number: int
    invocation: Invocation


@dataclass(frozen=True, slots=True)
class Logged:
    """A record for the host's log."""

    record: LogRecord
