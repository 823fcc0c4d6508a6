"""The manifest that a reconciliation wrote, and where the ledger of its repairs is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from shared.errors import ConfigError, Problem
from shared.printable import printable

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
    expected: int = 1
    """How many copies are to arrive."""
    arrived: tuple[str, ...] = ()
    """The targets that have a copy, as site and entity."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the message of a line of a manifest, or of a record in the journal."""
        enqueued = row.get("enqueued_time")
        return cls(
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
            row.get("expected", 1),
            tuple(row.get("arrived", ())),
        )

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
        with path.open(encoding="utf-8") as file:
            # Not splitlines: JSON strings may contain other line separators of Unicode.
            lines = [json.loads(line) for line in file]
        head, rows = lines[0], lines[1:]
        if head["manifest"] not in _VERSIONS:
            found = f"has version {head['manifest']}, expected {' or '.join(map(str, _VERSIONS))}"
            raise ConfigError([Problem(str(path), found, "use the version of Busway that wrote it")])
        if head["messages"] != len(rows):
            found = f"has {len(rows)} of {head['messages']} messages"
            raise ConfigError([Problem(str(path), found, "the file is incomplete: copy it again")])
        return [Missing.of(row) for row in rows], head["missing"] - len(rows)
    except (OSError, ValueError, LookupError, TypeError) as error:
        hint = "expected the repair.jsonl of a run of busway reconcile"
        raise ConfigError([Problem(str(path), f"is not a manifest ({type(error).__name__})", hint)]) from error


def ledger_of(manifest: Path) -> Path:
    """
    Return the path of the ledger for *manifest*.

    All manifests in a folder of results share one ledger, because a message is in the manifest of every night in which
    it is missing. A manifest elsewhere has its ledger in its own folder.
    """
    folder = manifest.resolve().parent
    return (folder.parents[1] if folder.parent.name == _RUNS else folder) / LEDGER
