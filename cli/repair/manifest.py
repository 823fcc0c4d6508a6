"""The manifest that a reconciliation wrote, and the ledger that repairs write."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from cli.file_lock import locked
from cli.synced_lines import SyncedLines
from shared.errors import ConfigError, Problem
from shared.printable import printable
from shared.private_file import open_private

LEDGER = "repaired.jsonl"

_VERSIONS = (1, 2)
_EXPIRED = "expired-unsent"
_RUNS = "runs"


class Missing(NamedTuple):
    """
    A message that entered and did not arrive.

    Units:   enqueued_time in milliseconds since 1970 UTC; digests are the hexadecimal of the journal.
    """

    task: str
    site: str
    entity: str
    partition: int | None
    sequence_number: int | None
    enqueued_time: int | None
    message_id: str | None
    body_digest: str | None
    property_digest: str | None
    copies: int
    seen: tuple[tuple[str, int, int], ...] = ()
    """The taps that saw it at its source, with partition and number: their entities may have a copy."""
    has_expired: bool = False
    """Its source expired it before its task could send it."""

    @property
    def key(self) -> str:
        """The key that identifies it, also if its entity was deleted and created."""
        if self.sequence_number is None:
            # Only taps saw it: they know neither its number at the source nor when the source enqueued it.
            numbers = ";".join(f"{tap}/{partition}/{number}" for tap, partition, number in self.seen)
            return f"{self.task}|{self.site}/{self.entity}|{self.message_id}|{self.body_digest}|{numbers}"
        return f"{self.task}|{self.site}/{self.entity}|{self.partition}|{self.sequence_number}|{self.enqueued_time}"

    @property
    def taps(self) -> tuple[str, ...]:
        """The names of the taps that saw it, each once."""
        return tuple(dict.fromkeys(tap for tap, _, _ in self.seen))

    @property
    def name(self) -> str:
        """Its task, id and sequence number, for people."""
        identity = printable(self.message_id or "(no message id)")
        number = (
            "unknown sequence number" if self.sequence_number is None else f"sequence number {self.sequence_number}"
        )
        return f"{self.task}: {identity}, {number}"


def read(path: Path) -> tuple[list[Missing], int]:
    """Return the messages of a manifest, and the number of missing messages beyond it; raises ConfigError."""
    try:
        lines = [json.loads(line) for line in _lines_of(path)]
        head, rows = lines[0], lines[1:]
        if head["manifest"] not in _VERSIONS:
            found = f"has version {head['manifest']}, expected {' or '.join(map(str, _VERSIONS))}"
            raise ConfigError([Problem(str(path), found, "use the version of Busway that wrote it")])
        if head["messages"] != len(rows):
            raise ConfigError(
                [
                    Problem(
                        str(path),
                        f"has {len(rows)} of {head['messages']} messages",
                        "the file is incomplete: copy it again",
                    )
                ]
            )
        return [_missing(row) for row in rows], head["missing"] - len(rows)
    except (OSError, ValueError, LookupError, TypeError) as error:
        hint = "expected the repair.jsonl of a run of busway reconcile"
        raise ConfigError([Problem(str(path), f"is not a manifest ({type(error).__name__})", hint)]) from error


def _lines_of(path: Path) -> list[str]:
    # Not splitlines: JSON strings may contain other line separators of Unicode.
    with path.open(encoding="utf-8") as file:
        return list(file)


def _missing(row: dict[str, Any]) -> Missing:
    enqueued = row.get("enqueued_time")
    return Missing(
        row["task"],
        row["src_site"],
        row["src_entity"],
        row.get("src_part"),
        row.get("src_seq"),
        None if enqueued is None else enqueued // 1000,
        row.get("message_id"),
        row.get("body_digest"),
        row.get("property_digest"),
        row.get("copies", 0),
        tuple(
            (each["tap"], each.get("partition", 0), each["number"])
            for each in row.get("places", ())
            if each["in"] == "tap"
        ),
        row.get("verdict") == _EXPIRED,
    )


def ledger_of(manifest: Path) -> Path:
    """
    Return the path of the ledger for *manifest*.

    All manifests in a folder of results share one ledger, because a message is in the manifest of every night in which
    it is missing. A manifest elsewhere has its ledger in its own folder.
    """
    folder = manifest.resolve().parent
    return (folder.parents[1] if folder.parent.name == _RUNS else folder) / LEDGER


class LedgerUnwritable(ConfigError):
    """A step of a repair cannot be noted, so that the repair has to end before the next one."""


class Ledger:
    """
    The states of repaired messages, in a file to which each step is appended before the next one.

    A message is `sending` before it is sent, and then `sent`, or `refused` if no target accepted it. After an
    interruption, the one message that is still `sending` may or may not have been sent. While a repair has it open for
    writing, no other one can open it.
    """

    def __init__(self, path: Path) -> None:
        """Read the states of earlier repairs; an incomplete line is ignored."""
        self.path = path
        self._states: dict[str, str] = {}
        self._read()

    def _read(self) -> None:
        for line in self._lines():
            try:
                entry = json.loads(line)
                self._states[entry["key"]] = entry["state"]
            except (ValueError, LookupError):
                continue

    def _lines(self) -> Sequence[str]:
        return _lines_of(self.path) if self.path.exists() else []

    def __enter__(self) -> Self:
        """
        Open the file for writing, as the only process that does.

        Raises ConfigError if another repair has it.
        """
        with contextlib.ExitStack() as opened:
            opened.enter_context(locked(self.path))
            # Another repair may have written to it since it was read.
            self._read()
            self._written = SyncedLines(opened.enter_context(open_private(self.path, "a")))
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self._opened.close()

    def state(self, message: Missing) -> str | None:
        """Return `sending`, `refused`, `sent`, or None for a new message."""
        return self._states.get(message.key)

    def note(self, message: Missing, state: str) -> None:
        """Write to disk that *message* is in *state*; raises LedgerUnwritable."""
        try:
            self._written.append(json.dumps({"key": message.key, "state": state}))
        except OSError as error:
            found = f"cannot be written ({error.strerror}) while {message.name} is {state}"
            hint = "make room there and repair again: the ledger has what was sent before"
            raise LedgerUnwritable([Problem(str(self.path), found, hint)]) from error
        self._states[message.key] = state
