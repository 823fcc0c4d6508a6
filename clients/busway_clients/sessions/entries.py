"""An entry of the journal: the state of one message, and its row."""

import hashlib
import json
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from busway_clients.errors import JournalMalformed
from busway_clients.rows import Properties

LONGEST_NUMBER = 19
"""Digits of a 64-bit number, the largest that services count with."""


def whole_number(text: str) -> int | None:
    """Return *text* as a number, None unless it is 0 or more with at most LONGEST_NUMBER digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else None


class Fields:
    """Reads properties of a row by type; every method raises JournalMalformed."""

    def __init__(self, properties: Properties, where: str) -> None:
        self._properties = properties
        self._where = where

    def text(self, name: str) -> str:
        """Return a text."""
        value = self._properties.get(name)
        if not isinstance(value, str):
            raise self._malformed(name, value, "text")
        return value

    def integer(self, name: str) -> int:
        """Return a number from 0."""
        value = self._properties.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._malformed(name, value, "a number from 0")
        return value

    def big(self, name: str) -> int | None:
        """Return an integer of any size, which is stored as text, since integers of a table have 32 bits."""
        if name not in self._properties:
            return None
        try:
            return int(self.text(name))
        except ValueError as error:
            raise self._malformed(name, self._properties[name], "digits") from error

    def count(self, name: str) -> int:
        """Return a number from 0 with at most LONGEST_NUMBER digits, which is stored as text."""
        value = self.text(name)
        number = whole_number(value)
        if number is None:
            raise self._malformed(name, value, "digits")
        return number

    def numbers(self, name: str) -> Mapping[str, int]:
        """Return an object of whole numbers."""
        value = self._json(name)
        if not isinstance(value, dict) or not all(type(each) is int for each in value.values()):
            raise self._malformed(name, value, "an object of numbers")
        return value

    def objects(self, name: str) -> Mapping[str, dict[str, str | int]]:
        """Return an object of objects; the caller checks their values."""
        value = self._json(name)
        if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
            raise self._malformed(name, value, "an object of objects")
        return value

    def _json(self, name: str) -> object:
        try:
            value: object = json.loads(self.text(name))
        except ValueError as error:
            raise self._malformed(name, self._properties[name], "JSON") from error
        return value

    def _malformed(self, name: str, value: object, expected: str) -> JournalMalformed:
        seen = "missing" if value is None else f"of type {type(value).__name__}"
        return JournalMalformed(f"{self._where}: {name} is {seen} or not well formed, expected {expected}")


_ENTRY_KEYS = "m."
_LONGEST_KEY = 200
ALPHANUMERIC = string.ascii_letters + string.digits


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

    *lines*: its places in ordered lines (see `order`). *attempt*: how often the application got it. *token*: the
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
            "Lines": json.dumps(dict(self.lines), sort_keys=True, separators=(",", ":")),
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


def _key(text: str) -> str:
    """
    Return *text* as (part of) a key, which may not contain /, # or ?, nor be longer than a table allows.

    Two texts never get the same key: characters are escaped by their bytes, and a text that is too long is cut and ends
    with its digest.
    """
    key = escaped(text, ALPHANUMERIC + "-_.")
    return key if len(key) <= _LONGEST_KEY else f"{key[:100]}~{hashlib.sha256(text.encode()).hexdigest()}"


def escaped(text: str, plain: str) -> str:
    """Return *text* with each character that is not *plain* as =, followed by its bytes."""
    return "".join(each if each in plain else "".join(f"={byte:02X}" for byte in each.encode()) for each in text)
