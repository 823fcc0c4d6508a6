"""Reads a JSON object key by key and collects its problems, each with its path."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any

from busway_broker.config import EXPECTED_CHILD_NAME, EXPECTED_NAME, is_child_name, is_entity_name
from busway_broker.entity_fields import Field
from shared.durations import parse_duration
from shared.errors import Problem

_MISSING = "?"
_MOST_DIGITS = 18
_REMARKS = ("$", "//", "_", "#")
"""How keys begin that files of the emulators have for people and for editors."""


class Reader:
    """One object of a JSON document; a key that was not read before `finish` is a problem."""

    def __init__(self, value: object, path: str, problems: list[Problem]) -> None:
        """Add problems to *problems* under *path*."""
        self._path = path
        self._problems = problems
        self._rest: dict[str, object] = {}
        if isinstance(value, Mapping):
            self._rest = {str(key): item for key, item in value.items()}
        else:
            self.problem(f"is {_kind(value)}", "expected an object")

    def problem(self, problem: str, hint: str = "", key: str = "") -> None:
        """Add a problem of this object, or of one of its keys."""
        self._problems.append(Problem(f"{self._path}.{key}" if key else self._path, problem, hint))

    def has(self, key: str) -> bool:
        """Return whether the key exists and is not null."""
        return self._rest.get(key) is not None

    def finish(self) -> None:
        """Add a problem for each key that was not read, except for remarks."""
        for key in self._rest:
            if not key.startswith(_REMARKS):
                self.problem("unknown key", "remove it, or correct its spelling", key)

    def ignore(self, *keys: str) -> None:
        """Pass over keys that others understand."""
        for key in keys:
            self._rest.pop(key, None)

    def child(self, key: str) -> "Reader":
        """Return the object at *key*; an absent one is empty."""
        value = self._rest.pop(key, None)
        return Reader({} if value is None else value, f"{self._path}.{key}", self._problems)

    def _take[Kind](self, key: str, kind: type[Kind], expected: str) -> Kind | None:
        """Return the value at *key*, None for an absent one or one of another kind, which is a problem."""
        value = self._rest.pop(key, None)
        if value is None or isinstance(value, kind):
            return value
        self.problem(f"is {_kind(value)}", f"expected {expected}", key)
        return None

    def children(self, key: str) -> "list[Reader]":
        """Return the objects of the list at *key*; an absent one is empty."""
        items = enumerate(self._take(key, list, "a list") or ())
        return [Reader(item, f"{self._path}.{key}[{index}]", self._problems) for index, item in items]

    def each[Item](self, key: str, read: Callable[["Reader"], Item]) -> tuple[Item, ...]:
        """Return what *read* makes of the objects of the list at *key*, and note the keys that it leaves."""
        items = []
        for child in self.children(key):
            items.append(read(child))
            child.finish()
        return tuple(items)

    def texts(self, key: str) -> list[str]:
        """Return the texts of the list at *key*; an absent one is empty."""
        value = self._take(key, list, "a list of texts") or []
        if all(isinstance(item, str) for item in value):
            return value
        self.problem(f"is {_kind(value)}", "expected a list of texts", key)
        return []

    def mapping(self, key: str) -> Mapping[str, object]:
        """Return the object at *key* without reading it further."""
        return self._take(key, dict, "an object") or {}

    def name(self) -> str:
        """Return the text at Name, which is required; the name becomes part of the path."""
        is_missing = self._rest.get("Name") in (None, "")
        name = self.optional_text("Name")
        if not name:
            if is_missing:
                self.problem("is missing", "every entity needs a name", "Name")
            return _MISSING
        self._path = f"{self._path}({name})"
        return name

    def entity_name(self) -> str:
        """Return the name of a queue, topic or event hub."""
        name = self.name()
        if name != _MISSING and not is_entity_name(name):
            self.problem("is no name for an entity", f"expected {EXPECTED_NAME}")
        return name

    def child_name(self, kind: str) -> str:
        """Return the name of a subscription or rule, whose *kind* is for people."""
        name = self.name()
        if name != _MISSING and not is_child_name(name):
            self.problem(f"is no name for a {kind}", f"expected {EXPECTED_CHILD_NAME}")
        return name

    def settings(self, known: Iterable[Field]) -> dict[str, Any]:
        """Return the values of the *known* keys by attribute; what is absent, null or empty has none."""
        found = {}
        for field in known:
            value = self._rest.pop(field.element, None)
            if value is None or value == "":
                continue
            if isinstance(value, bool):
                value = "true" if value else "false"
            if not isinstance(value, str | int):
                self.problem(f"is {_kind(value)}", "expected text, a number or a boolean", field.element)
                continue
            try:
                found[field.attribute] = field.read(str(value).strip())
            except ValueError as error:
                self.problem(f"is {value!r}", str(error), field.element)
        return found

    def unique(self, names: Iterable[str], kind: str = "entities") -> None:
        """Add a problem for each duplicate name; case is ignored."""
        seen = set()
        for name in names:
            if name.lower() in seen:
                self.problem(f"has two {kind} named {name}", "names must differ by more than case")
            seen.add(name.lower())

    def optional_text(self, key: str) -> str | None:
        """Return the text at *key*, None for an empty one, which the emulators' own files contain."""
        return self._take(key, str, "text") or None

    def text(self, key: str, default: str) -> str:
        """Return the text at *key*."""
        return self.optional_text(key) or default

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return the boolean at *key*."""
        value = self._take(key, bool, "true or false")
        return default if value is None else value

    def optional_number(self, key: str, minimum: int, maximum: int) -> int | None:
        """Return the whole number at *key*; the Event Hubs emulator writes it as text."""
        value = self._rest.pop(key, None)
        if value is None:
            return None
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            self.problem(f"is {_kind(value)}", "expected a whole number", key)
            return None
        if not minimum <= value <= maximum:
            self.problem(f"is {value}", f"expected {minimum} to {maximum}", key)
            return None
        return value

    def number(self, key: str, default: int, minimum: int, maximum: int) -> int:
        """Return the whole number at *key*."""
        value = self.optional_number(key, minimum, maximum)
        return default if value is None else value

    def optional_duration(self, key: str, default: timedelta | None = None) -> timedelta | None:
        """Return the duration at *key*, None for never."""
        text = self.optional_text(key)
        if text is None:
            return default
        try:
            return parse_duration(text)
        except ValueError as error:
            self.problem(f"is {text!r}", str(error), key)
            return None

    def duration(self, key: str, default: str) -> timedelta:
        """Return the duration at *key*, which must be finite and not zero."""
        text = self.text(key, default)
        try:
            duration = parse_duration(text)
        except ValueError as error:
            self.problem(f"is {text!r}", str(error), key)
        else:
            if duration:
                return duration
            self.problem("is infinite or zero", f"expected a duration such as {default}", key)
        duration = parse_duration(default)
        assert duration is not None  # noqa: S101 - the defaults in this package end
        return duration


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
