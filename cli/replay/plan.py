"""What a replay sends, fixed when it starts, in a file: an interrupted one continues with the same."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from cli.durations import duration_of
from cli.files import whole_file
from shared.errors import ConfigError, Problem
from shared.message.replay import replay_name

_FOLDER = Path("build/replay")
_AGO = re.compile(r"\d+(\.\d+)?(ms|s|m|h|d|w)")
_START = "start"


class Position(NamedTuple):
    """A time in milliseconds since 1970 UTC, or a sequence number; neither for the start."""

    time: int | None = None
    number: int | None = None

    def is_before(self, number: int | None, time: int | None) -> bool:
        """Return whether a message with this number and enqueued time is at the position or behind it."""
        if self.number is not None:
            return number is not None and number >= self.number
        return self.time is None or (time is not None and time >= self.time)

    def is_after(self, number: int | None, time: int | None) -> bool:
        """Return whether a message is at the position or before it."""
        if self.number is not None:
            return number is not None and number <= self.number
        return self.time is None or (time is not None and time <= self.time)

    def is_behind(self, last: "Position") -> bool:
        """Return whether nothing can be between this position and *last*."""
        pairs = ((self.time, last.time), (self.number, last.number))
        return any(one is not None and other is not None and one > other for one, other in pairs)


def _position_of(text: str, option: str, now: datetime) -> Position:
    """Return the position that *text* names: a sequence number, a time, a duration before *now*, or `start`."""
    if text == _START:
        return Position()
    if text.isdigit():
        return Position(number=int(text))
    if _AGO.fullmatch(text):
        return Position(round((now - duration_of(text, option)).timestamp() * 1000))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        hint = "expected a time like 2026-11-23T08:00 (UTC), a duration like 2h, a sequence number, or start"
        raise ConfigError([Problem(f"{option} {text}", "is not a position", hint)]) from error
    return Position(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


@dataclass
class Plan:
    """A replay: its task, its id, and what it selects."""

    task: str
    identity: str
    first: Position
    last: Position
    where: str | None = None
    partitions: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    journal: str | None = None
    consumer_group: str | None = None
    new_ids: bool = False
    is_finished: bool = False

    @property
    def name(self) -> str:
        """The name of the replay in the journal and the ledger."""
        return replay_name(self.task, self.identity)

    @property
    def ledger(self) -> Path:
        """The file with the ledger."""
        return _FOLDER / self.task / f"{self.identity}.jsonl"

    @property
    def file(self) -> Path:
        """The file with the plan."""
        return _FOLDER / self.task / f"{self.identity}.json"

    def write(self) -> None:
        """Write the plan to its file."""
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_file(self.file) as file:
            file.write(json.dumps(asdict(self)))


def lock_of(task: str) -> Path:
    """Return the file whose lock only one replay of a task has."""
    return _FOLDER / task / "replay"


def new_plan(task: str, first: str | None, last: str | None, **selected: Any) -> Plan:  # noqa: ANN401 - fields of Plan
    """Return the plan of a new replay between two positions of the command line; raises ConfigError."""
    now = datetime.now(UTC)
    if first is None:
        raise ConfigError([Problem("--from", "is missing", "expected a time, a duration, a sequence number, or start")])
    begin, end = _position_of(first, "--from", now), _position_of(last or now.isoformat(), "--to", now)
    if begin.is_behind(end):
        hint = "expected an earlier position than that of --to, which is now by default"
        raise ConfigError([Problem(f"--from {first}", "is behind the last message", hint)])
    return Plan(task, now.strftime("%Y%m%dT%H%M%SZ"), begin, end, **selected)


def resumed_plan(task: str, given: Sequence[str]) -> Plan:
    """Return the plan of the replay to continue; raises ConfigError, also for options *given* that it has fixed."""
    if given:
        text, hint = "is fixed by the replay that is resumed", "leave it out, or start another replay"
        raise ConfigError([Problem(option, text, hint) for option in given])
    begun = _unfinished(task)
    if begun is None:
        raise ConfigError([Problem(f"task {task}", "has no replay to resume", "start one with --from")])
    return begun


def check_finished(task: str) -> None:
    """Raise ConfigError if a replay of a task has not finished."""
    begun = _unfinished(task)
    if begun is not None:
        hint = f"continue it with --resume, or delete {begun.file} to give it up"
        raise ConfigError([Problem(f"task {task}", f"its replay {begun.identity} has not finished", hint)])


def _unfinished(task: str) -> Plan | None:
    """Return the latest replay of a task that has not finished, if there is one; raises ConfigError."""
    for path in sorted((_FOLDER / task).glob("*.json"), reverse=True):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            plan = Plan(**{**content, "first": Position(*content["first"]), "last": Position(*content["last"])})
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise ConfigError([Problem(str(path), "is not the plan of a replay", "delete it")]) from error
        if not plan.is_finished:
            return plan
    return None
