"""An entry of the journal: the state of one message, and its row."""

import hashlib
import json
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from busway_clients.sessions.errors import JournalMalformed
from busway_clients.sessions.fields import Fields
from busway_clients.sessions.rows import Properties

_ENTRY_KEYS = "m."
_LONGEST_KEY = 200
_PLAIN = frozenset(string.ascii_letters + string.digits + "-_.")


class State(Enum):
    """The state of a message; COMPLETED and FAULTED are final."""

    PENDING = "pending"
    WORKING = "working"
    COMPLETED = "completed"
    FAULTED = "faulted"

    @property
    def is_final(self) -> bool:
        """Whether the message must not be processed any more."""
        return self in (State.COMPLETED, State.FAULTED)


@dataclass(frozen=True)
class Entry:
    """
    A message in the journal.

    *lines*: its places in ordered lines (see `received`). *attempt*: how often the application got it. *token*: the
    fencing token of the worker that wrote it last. *is_passed*: later messages waited for it until the timeout, and no
    longer wait.
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
    is_passed: bool = False

    @property
    def key(self) -> str:
        """The key of its row."""
        return entry_key(self.message_id)

    def properties(self) -> Properties:
        """Return the entry as the properties of a row."""
        return self._properties

    @cached_property
    def _properties(self) -> Properties:
        # Cached: the row of a lease is written with each message and contains the same entries many times.
        written: dict[str, str | int] = {
            "Id": self.message_id,
            "State": self.state.value,
            "Open": 0 if self.state.is_final else 1,
            "Attempt": self.attempt,
            "Token": str(self.token),
            "Worker": self.worker,
            "Site": self.site,
            "Origin": self.origin,
            "Lines": numbers_text(self.lines),
            "Reason": self.reason,
            "Description": self.description,
        }
        if self.number is not None:
            written["Number"] = str(self.number)
        if self.finished is not None:
            written["Finished"] = self.finished
        if self.is_passed:
            written["Passed"] = 1
        return written


def entry_key(message_id: str) -> str:
    """Return the key of a message's row."""
    return _ENTRY_KEYS + _key(message_id)


def session_partition(session_id: str) -> str:
    """Return the partition of a session."""
    return "s." + _key(session_id)


def message_partition(session_id: str | None, message_id: str) -> str:
    """Return the partition of a message that is locked individually."""
    return f"i.{_key(message_id)}" if session_id is None else f"i.{_key(message_id)}.{_key(session_id)}"


def entry_of(properties: Properties, where: str) -> Entry:
    """Parse the properties of a row; raises JournalMalformed."""
    read = Fields(properties, where)
    states = {state.value: state for state in State}
    state = read.text("State")
    if state not in states:
        raise JournalMalformed(f"{where}: State is {state[:20]!r}, expected one of {', '.join(states)}")
    return Entry(
        message_id=read.text("Id"),
        state=states[state],
        attempt=read.integer("Attempt"),
        token=read.count("Token"),
        worker=read.text("Worker"),
        site=read.text("Site"),
        origin=read.text("Origin"),
        lines=read.numbers("Lines"),
        number=read.big("Number"),
        reason=read.text("Reason"),
        description=read.text("Description"),
        finished=read.text("Finished") if "Finished" in properties else None,
        is_passed=properties.get("Passed") == 1,
    )


def numbers_text(values: Mapping[str, int]) -> str:
    """Return numbers by name as JSON, which Fields.numbers reads."""
    return json.dumps(dict(values), sort_keys=True, separators=(",", ":"))


def _key(text: str) -> str:
    """
    Return *text* as (part of) a key, which may not contain /, # or ?, nor be longer than a table allows.

    Two texts never get the same key: characters are escaped by their bytes, and a text that is too long is cut and ends
    with its digest.
    """
    escaped = "".join(each if each in _PLAIN else "".join(f"={byte:02X}" for byte in each.encode()) for each in text)
    if len(escaped) <= _LONGEST_KEY:
        return escaped
    return f"{escaped[:100]}~{hashlib.sha256(text.encode()).hexdigest()}"
