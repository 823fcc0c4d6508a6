"""What the journal says of a message and of a session, and how both stand in a row."""

import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from busway_clients.sessions.errors import JournalMalformed
from busway_clients.sessions.rows import Properties, Row

SCHEMA = 1
LEASE_KEY = "lease"
_ENTRY_KEYS = "m."
_LONGEST_KEY = 200
_PLAIN = frozenset(string.ascii_letters + string.digits + "-_.")


class State(Enum):
    """What has become of a message; COMPLETED and FAULTED are final."""

    PENDING = "pending"
    WORKING = "working"
    COMPLETED = "completed"
    FAULTED = "faulted"

    @property
    def is_final(self) -> bool:
        """Whether nobody is to process the message any more."""
        return self in (State.COMPLETED, State.FAULTED)


@dataclass(frozen=True)
class Entry:
    """
    A message in the journal.

    *lines* are its places in ordered lines (see `arrivals`), *attempt* counts how often the application was given it,
    *token* is the fencing token of the worker that wrote it last.
    """

    message_id: str
    state: State
    attempt: int = 0
    token: int = 0
    worker: str = ""
    site: str = ""
    origin: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    number: int | None = None
    reason: str = ""
    description: str = ""
    finished: str | None = None

    @property
    def key(self) -> str:
        """The key of its row."""
        return entry_key(self.message_id)

    def properties(self) -> Properties:
        """Return it as the properties of a row."""
        written: dict[str, str | int] = {
            "Id": self.message_id,
            "State": self.state.value,
            "Open": 0 if self.state.is_final else 1,
            "Attempt": self.attempt,
            "Token": self.token,
            "Worker": self.worker,
            "Site": self.site,
            "Origin": self.origin,
            "Lines": _json(self.lines),
            "Reason": self.reason,
            "Description": self.description,
        }
        if self.number is not None:
            written["Number"] = str(self.number)
        if self.finished is not None:
            written["Finished"] = self.finished
        return written


@dataclass(frozen=True)
class Lease:
    """
    Who processes a session.

    *token* grows by one with each owner; *beat* with each write of an owner, by which others see that it lives;
    *arrivals* when another worker has registered messages; *done* and *through* are how far each line, and the numbers
    of the application, have been finished.
    """

    worker: str
    site: str
    token: int
    beat: int
    seconds: float
    is_held: bool
    arrivals: int = 0
    done: Mapping[str, int] = field(default_factory=dict)
    through: int | None = None
    finished: str | None = None

    def properties(self) -> Properties:
        """Return it as the properties of a row."""
        written: dict[str, str | int] = {
            "Open": 0,
            "Worker": self.worker,
            "Site": self.site,
            "Token": self.token,
            "Beat": self.beat,
            "Milliseconds": round(self.seconds * 1000),
            "Held": 1 if self.is_held else 0,
            "Arrivals": self.arrivals,
            "Done": _json(self.done),
        }
        if self.through is not None:
            written["Through"] = str(self.through)
        elif self.finished is not None and not self.is_held:
            # Without numbers nothing is lost with the row once the session's messages are forgotten.
            written["Finished"] = self.finished
        return written

    def next_beat(self, **changes: Any) -> "Lease":  # noqa: ANN401 - fields of this class, of their types
        """Return what its owner writes next."""
        return replace(self, beat=self.beat + 1, **changes)


@dataclass(frozen=True)
class Record:
    """What the journal holds of a session: its lease, open entries, and those that were asked for."""

    lease: Lease | None
    version: str | None
    entries: Mapping[str, Entry]

    def with_entries(self, *entries: Entry) -> "Record":
        """Return it as it is after *entries* were written."""
        return replace(self, entries={**self.entries, **{entry.message_id: entry for entry in entries}})


def entry_key(message_id: str) -> str:
    """Return the key of a message's row."""
    return _ENTRY_KEYS + _key(message_id)


def session_partition(session_id: str) -> str:
    """Return the partition of a session."""
    return "s." + _key(session_id)


def message_partition(session_id: str | None, message_id: str) -> str:
    """Return the partition of a message that is locked by itself."""
    return f"i.{_key(message_id)}" if session_id is None else f"i.{_key(message_id)}.{_key(session_id)}"


def record_of(rows: Sequence[Row], place: str) -> Record:
    """Return what *rows* of a partition say; raises JournalMalformed."""
    lease: Lease | None = None
    version: str | None = None
    entries: dict[str, Entry] = {}
    for row in rows:
        where = f"{place}, row {row.key}"
        if row.key == LEASE_KEY:
            lease, version = _lease(row.properties, where), row.version
        else:
            entry = _entry(row.properties, where)
            if entry.key != row.key:
                raise JournalMalformed(f"{where}: is of the message of row {entry.key}, expected its own")
            entries[entry.message_id] = entry
    return Record(lease, version, entries)


def _entry(properties: Properties, where: str) -> Entry:
    read = _Reader(properties, where)
    states = {state.value: state for state in State}
    state = read.text("State")
    if state not in states:
        raise JournalMalformed(f"{where}: State is {state[:20]!r}, expected one of {', '.join(states)}")
    return Entry(
        message_id=read.text("Id"),
        state=states[state],
        attempt=read.integer("Attempt"),
        token=read.integer("Token"),
        worker=read.text("Worker"),
        site=read.text("Site"),
        origin=read.text("Origin"),
        lines=read.numbers("Lines"),
        number=read.big("Number"),
        reason=read.text("Reason"),
        description=read.text("Description"),
        finished=read.text("Finished") if "Finished" in properties else None,
    )


def _lease(properties: Properties, where: str) -> Lease:
    read = _Reader(properties, where)
    return Lease(
        worker=read.text("Worker"),
        site=read.text("Site"),
        token=read.integer("Token"),
        beat=read.integer("Beat"),
        seconds=read.integer("Milliseconds") / 1000,
        is_held=read.integer("Held") == 1,
        arrivals=read.integer("Arrivals"),
        done=read.numbers("Done"),
        through=read.big("Through"),
    )


class _Reader:
    """Takes properties of a row by their types."""

    def __init__(self, properties: Properties, where: str) -> None:
        self._properties = properties
        self._where = where

    def text(self, name: str) -> str:
        value = self._properties.get(name)
        if not isinstance(value, str):
            raise self._malformed(name, value, "a text")
        return value

    def integer(self, name: str) -> int:
        value = self._properties.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._malformed(name, value, "a number from 0 on")
        return value

    def big(self, name: str) -> int | None:
        """Take an integer of any size; such stand as text, since a table's are of 32 bits."""
        if name not in self._properties:
            return None
        try:
            return int(self.text(name))
        except ValueError as error:
            raise self._malformed(name, self._properties[name], "digits") from error

    def numbers(self, name: str) -> Mapping[str, int]:
        try:
            value = json.loads(self.text(name))
        except ValueError as error:
            raise self._malformed(name, self._properties[name], "JSON") from error
        if not isinstance(value, dict) or not all(type(each) is int for each in value.values()):
            raise self._malformed(name, value, "an object of numbers")
        return value

    def _malformed(self, name: str, value: object, expected: str) -> JournalMalformed:
        seen = "missing" if value is None else f"of type {type(value).__name__}"
        return JournalMalformed(f"{self._where}: {name} is {seen} or not well formed, expected {expected}")


def _json(values: Mapping[str, int]) -> str:
    return json.dumps(dict(values), sort_keys=True, separators=(",", ":"))


def _key(text: str) -> str:
    """
    Return *text* as (part of) a key, which may hold no slash, # or ?, and be no longer than a
    table allows.

    Two texts never get the same key: what is escaped is so by its bytes, and what is too long ends with its digest.
    """
    escaped = "".join(each if each in _PLAIN else "".join(f"={byte:02X}" for byte in each.encode()) for each in text)
    if len(escaped) <= _LONGEST_KEY:
        return escaped
    return f"{escaped[:100]}~{hashlib.sha256(text.encode()).hexdigest()}"
