"""
The record of what was resent, so that a run which was interrupted can be repeated: nothing is lost or sent twice.

A line is written to disk before each step: `sending` before messages are sent, then `sent`, `refused` (the target has
not accepted them) or, when they have left their entity, `completed`. A message that is still `sending` when a process
was killed may or may not have been sent: `cli.dead.evidence` finds out.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote

from cli.dead.places import Place
from cli.file_lock import locked
from shared.errors import ConfigError, Problem
from shared.private_file import open_private

SENDING, SENT, REFUSED, COMPLETED = "sending", "sent", "refused", "completed"

_FOLDER = Path("build/resend")
_VERSION = 1


class Entry(NamedTuple):
    """The state of a message: since when (seconds since 1970 UTC), sent to what, and in which run."""

    state: str
    at: float
    to: str
    run: int


def ledger_of(place: Place) -> Path:
    """Return the default ledger for the messages of *place*; names are compared without regard to case, as Azure's."""
    return _FOLDER / place.site / f"{quote(place.entity.lower(), safe='')}.jsonl"


class Ledger:
    """
    The states of messages by their keys, in a file that only one process at a time has open.

    Raises: opening raises ConfigError if another process has it, or if the file is the ledger of something else.
    """

    def __init__(self, path: Path, name: str) -> None:
        """Use the file *path* for the messages of the entity *name*."""
        self.path = path
        self.entries: dict[str, Entry] = {}
        self.run = 0
        self._name = name

    def __enter__(self) -> Self:
        """Lock the file and read it; an incomplete last line is ignored."""
        with contextlib.ExitStack() as opened:
            opened.enter_context(locked(self.path))
            self._read()
            self._file = opened.enter_context(open_private(self.path, "a"))
            # A process that was killed may have left an incomplete line.
            self._file.write("\n" if self._file.tell() else "")
            self.run += 1
            self._append({"ledger": _VERSION, "entity": self._name, "run": self.run, "at": time.time()})
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close and unlock it."""
        self._opened.close()

    def state(self, key: str) -> str | None:
        """Return the state of a message, None for one that was never sent."""
        entry = self.entries.get(key)
        return None if entry is None else entry.state

    def note(self, state: str, keys: Iterable[str], to: str) -> None:
        """Write to disk that messages are in *state*."""
        known = list(keys)
        if not known:
            return
        at = time.time()
        self._append({"state": state, "to": to, "at": at, "keys": known})
        self._apply(state, at, to, known)

    def sent_before(self, entry: Entry) -> list[str]:
        """Return what the latest run up to that of *entry* is known to have sent to the same target."""
        by_run: dict[int, list[str]] = {}
        for key, each in self.entries.items():
            if each.to == entry.to and each.run <= entry.run and each.state in (SENT, COMPLETED):
                by_run.setdefault(each.run, []).append(key)
        return by_run[max(by_run)] if by_run else []

    def _append(self, line: object) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _apply(self, state: str, at: float, to: str, keys: Iterable[str]) -> None:
        for key in keys:
            before = self.entries.get(key)
            # A message belongs to the run that has sent it.
            is_later_step = state == COMPLETED and before is not None
            run = before.run if is_later_step and before is not None else self.run
            self.entries[key] = Entry(state, at, to, run)

    def _read(self) -> None:
        self.entries, self.run = {}, 0
        for line in self._lines():
            try:
                content = json.loads(line)
                if "ledger" in content:
                    self._check(content)
                    self.run = content["run"]
                else:
                    self._apply(content["state"], content["at"], content["to"], content["keys"])
            except (ValueError, LookupError, TypeError):
                continue

    def _check(self, head: dict[str, object]) -> None:
        if head["ledger"] != _VERSION or head["entity"] != self._name:
            found = f"is the ledger of {head['entity']}, version {head['ledger']}"
            expected = f"expected that of {self._name}, version {_VERSION}: name another file with --ledger"
            raise ConfigError([Problem(str(self.path), found, expected)])

    def _lines(self) -> Iterator[str]:
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8", errors="replace") as file:
            yield from file
