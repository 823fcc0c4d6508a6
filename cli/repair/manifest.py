"""The manifest that a reconciliation wrote, and the ledger of what repairs have done so far."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from shared.errors import ConfigError, Problem

LEDGER = "repaired.jsonl"

_VERSION = 1
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
    taps: tuple[str, ...] = ()
    """The taps that saw it at its source: what they look at may have a copy."""

    @property
    def key(self) -> str:
        """What tells it from every other message, also in a re-made entity."""
        return f"{self.task}|{self.site}/{self.entity}|{self.partition}|{self.sequence_number}|{self.enqueued_time}"

    @property
    def name(self) -> str:
        """How a person finds it."""
        return f"{self.task}: {self.message_id or '(no message id)'}, number {self.sequence_number}"


def read(path: Path) -> tuple[list[Missing], int]:
    """Return the messages of a manifest, and how many more were missing; raises ConfigError."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        head, rows = lines[0], lines[1:]
        if head["manifest"] != _VERSION:
            found = f"is of version {head['manifest']}, expected {_VERSION}"
            raise ConfigError([Problem(str(path), found, "repair with the version of Busway that reconciled")])
        if head["messages"] != len(rows):
            raise ConfigError(
                [Problem(str(path), f"has {len(rows)} of {head['messages']} messages", "it is cut short")]
            )
        return [_missing(row) for row in rows], head["missing"] - len(rows)
    except (OSError, ValueError, LookupError, TypeError) as error:
        hint = "expected the repair.jsonl of a run of busway reconcile"
        raise ConfigError([Problem(str(path), f"is no manifest: {type(error).__name__}", hint)]) from error


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
        tuple(dict.fromkeys(each["tap"] for each in row.get("places", ()) if each["in"] == "tap")),
    )


def ledger_of(manifest: Path) -> Path:
    """
    Return the ledger that a manifest shares with others: a message is in that of every night in which it is missing.

    It is in the folder of the results, where a run that is repeated does not take it away; for a manifest that was
    copied elsewhere, beside it.
    """
    folder = manifest.resolve().parent
    return (folder.parents[1] if folder.parent.name == _RUNS else folder) / LEDGER


class Ledger:
    """
    What repairs have done, in a file that each step is added to before the next one is taken.

    A message stands there as `sending` before it is sent and as `sent` afterwards, so that a repair that was cut off
    knows of the one message of which it knows nothing; as `refused` where it is certain that nobody has taken it.
    """

    def __init__(self, path: Path) -> None:
        """Read what earlier repairs have done; a line that was cut off counts as not written."""
        self.path = path
        self._states: dict[str, str] = {}
        for line in self._lines():
            try:
                told = json.loads(line)
                self._states[told["key"]] = told["state"]
            except (ValueError, LookupError):
                continue

    def _lines(self) -> Sequence[str]:
        return self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []

    def __enter__(self) -> Self:
        """Open the file to write."""
        self._file = self.path.open("a", encoding="utf-8")
        # Behind a line that was cut off.
        self._file.write("\n" if self._file.tell() else "")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self._file.close()

    def state(self, message: Missing) -> str | None:
        """Return `sending`, `refused` or `sent`, None where nothing has been done."""
        return self._states.get(message.key)

    def note(self, message: Missing, state: str) -> None:
        """Write on disk that *message* is in *state*."""
        self._states[message.key] = state
        self._file.write(json.dumps({"key": message.key, "state": state}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
